//! Requests with one wrong field, generated from the API description of a body.

use crate::schema::{contradicts, resolved};
use serde_json::{Map, Value, json};

/// Placeholder for a field's value.
const HERE: &str = "@@HERE@@";

/// A body with one changed field.
pub(super) struct Case {
    /// The field, and its new value.
    pub(super) about: String,
    pub(super) body: Vec<u8>,
    pub(super) expected: Expected,
}

/// What the API description implies for a body.
pub(super) enum Expected {
    /// The server may refuse the content.
    Allowed,
    /// The server must refuse it: the body is not valid JSON.
    Refused,
    /// The server must refuse it and name this field.
    RefusedFor(String),
}

/// A field's value in an otherwise valid body.
struct Field {
    body: Value,
    /// The JSON pointer to the value.
    at: String,
    /// The field's name; for an element of an array, the array's name.
    name: String,
    /// Whether the object also accepts fields that its schema does not list.
    is_extra: bool,
    /// Whether another alternative of the schema may allow the body without this field.
    is_choice: bool,
}

/// Each field of a body, present or optional, made wrong in each way.
pub(super) fn all(api: &Value, schema: &Value) -> Vec<Case> {
    let mut cases = Vec::new();
    let examples = resolved(api, schema)["examples"].as_array().cloned().unwrap_or_default();
    for example in examples {
        let (at, name) = (String::new(), String::new());
        let root = Field { body: example.clone(), at, name, is_extra: false, is_choice: false };
        let mut fields = vec![root];
        collect(api, schema, &example, ("", false), &mut fields);
        for field in fields {
            values(api, schema, &field, &mut cases);
            members(api, schema, &field, &mut cases);
        }
    }
    cases
}

/// Collects the fields of the value at `at`, including absent and alternative ones.
fn collect(
    api: &Value,
    schema: &Value,
    body: &Value,
    (at, is_choice): (&str, bool),
    fields: &mut Vec<Field>,
) {
    let schema = resolved(api, schema);
    let value = body.pointer(at).unwrap();
    for choice in schema["oneOf"].as_array().into_iter().flatten() {
        let (body, is_choice) = match contradicts(api, choice, value) {
            None => (body.clone(), false),
            Some(_) => (with(body, at, sample(api, choice)), true),
        };
        collect(api, choice, &body, (at, is_choice), fields);
    }
    let others = &schema["additionalProperties"];
    let is_extra = others.is_object() || *others == json!(true);
    let mut add = |schema: &Value, name: &str, key: &str| {
        let inner = format!("{at}/{key}");
        let body = match body.pointer(&inner) {
            Some(value) if !value.is_null() => body.clone(),
            _ => with(body, &inner, sample(api, schema)),
        };
        let (name, at) = (name.to_owned(), inner.clone());
        fields.push(Field { body: body.clone(), at, name, is_extra, is_choice });
        collect(api, schema, &body, (&inner, false), fields);
    };
    match value {
        Value::Object(_) => {
            for (name, known) in schema["properties"].as_object().into_iter().flatten() {
                add(known, name, name);
            }
            if others.is_object() {
                add(others, "extra", "extra");
            }
        }
        Value::Array(_) if schema["items"].as_object().is_some_and(|items| !items.is_empty()) => {
            let name = at.rsplit('/').find(|part| part.parse::<usize>().is_err());
            add(&schema["items"], name.unwrap_or_default(), "0");
        }
        _ => {}
    }
}

/// A minimal value of a schema.
fn sample(api: &Value, schema: &Value) -> Value {
    let schema = resolved(api, schema);
    let given = [&schema["examples"][0], &schema["default"], &schema["enum"][0]];
    if let Some(given) = given.into_iter().find(|given| !given.is_null()) {
        return given.clone();
    }
    if let Some(choice) = schema["oneOf"].get(0) {
        return sample(api, choice);
    }
    let kind = schema["type"].get(0).unwrap_or(&schema["type"]);
    match kind.as_str() {
        Some("integer" | "number") => json!(schema["minimum"].as_u64().unwrap_or(1)),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => {
            let required = schema["required"].as_array().into_iter().flatten();
            let required = required.map(|name| name.as_str().unwrap());
            let member = |name: &str| (name.to_owned(), sample(api, &schema["properties"][name]));
            Value::Object(required.map(member).collect::<Map<_, _>>())
        }
        _ => json!("relu"),
    }
}

/// A copy of the body with another value at `at`.
fn with(body: &Value, at: &str, value: Value) -> Value {
    let mut body = body.clone();
    if let Some(place) = body.pointer_mut(at) {
        *place = value;
        return body;
    }
    let (parent, key) = at.rsplit_once('/').unwrap();
    match body.pointer_mut(parent).unwrap() {
        Value::Object(members) => drop(members.insert(key.to_owned(), value)),
        Value::Array(items) => items.push(value),
        other => panic!("{other} has no members"),
    }
    body
}

/// The body with raw bytes in place of the field's value.
fn written(field: &Field, bytes: &[u8]) -> Vec<u8> {
    let text = with(&field.body, &field.at, json!(HERE)).to_string();
    let (before, after) = text.split_once(&json!(HERE).to_string()).unwrap();
    [before.as_bytes(), bytes, after.as_bytes()].concat()
}

/// What the API description implies for these bytes.
fn expected(api: &Value, schema: &Value, body: &[u8], name: Option<&str>) -> Expected {
    // An empty body counts as an empty object.
    let body = if body.is_empty() { b"{}" } else { body };
    match (serde_json::from_slice::<Value>(body), name) {
        (Ok(body), _) if contradicts(api, schema, &body).is_none() => Expected::Allowed,
        (Ok(_), Some(name)) => Expected::RefusedFor(name.to_owned()),
        _ => Expected::Refused,
    }
}

/// Cases with other values of a field: of each JSON type, and not JSON at all.
fn values(api: &Value, schema: &Value, field: &Field, cases: &mut Vec<Case>) {
    let (long, deep) = (json!("x".repeat(100_000)), "[".repeat(200) + &"]".repeat(200));
    for bytes in [
        &b"null"[..],
        b"true",
        b"-1",
        b"1.5",
        b"1e400",
        b"18446744073709551616",
        b"\"\"",
        long.to_string().as_bytes(),
        b"\"\xff\"",
        b"\"\\ud800\"",
        b"[]",
        b"[[1]]",
        b"{}",
        b"tru",
        b"",
        deep.as_bytes(),
    ] {
        let text: String = String::from_utf8_lossy(bytes).chars().take(24).collect();
        let (about, body) = (format!("{} = {text}", field.at), written(field, bytes));
        let name = Some(field.name.as_str()).filter(|_| !(field.is_choice && bytes == b"null"));
        let expected = expected(api, schema, &body, name);
        cases.push(Case { about, body, expected });
    }
}

/// Cases with a field missing or duplicated, and with an unknown field in an object.
fn members(api: &Value, schema: &Value, field: &Field, cases: &mut Vec<Case>) {
    let mut add = |about: String, body: Vec<u8>, name: Option<&str>| {
        let expected = expected(api, schema, &body, name);
        cases.push(Case { about, body, expected });
    };
    if field.body.pointer(&field.at).unwrap().is_object() {
        let body = with(&field.body, &format!("{}/nobodys", field.at), json!(1));
        add(format!("{}/nobodys", field.at), body.to_string().into(), Some("nobodys"));
    }
    let Some((parent, key)) = field.at.rsplit_once('/') else { return };
    let mut body = field.body.clone();
    let Some(Value::Object(members)) = body.pointer_mut(parent) else { return };
    let value = members.remove(key).unwrap();
    let name = Some(key).filter(|_| !field.is_choice);
    add(format!("{} is not there", field.at), body.to_string().into(), name);
    let twice = format!("{value},{}:{value}", json!(key));
    let (about, body) = (format!("{} twice", field.at), written(field, twice.as_bytes()));
    // For fields that the schema does not list, the last duplicate counts.
    let known = Expected::RefusedFor(key.to_owned());
    let expected = if field.is_extra { Expected::Allowed } else { known };
    cases.push(Case { about, body, expected });
}
