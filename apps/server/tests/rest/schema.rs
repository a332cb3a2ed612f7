//! The part of JSON Schema that the API description uses.

use serde_json::Value;

/// The target of a reference, or the value itself.
pub(crate) fn resolved<'a>(api: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(reference) => {
            let found = api.pointer(reference.strip_prefix('#').unwrap());
            found.unwrap_or_else(|| panic!("{reference} leads nowhere"))
        }
        None => value,
    }
}

/// Where a value differs from a schema; fields that the schema does not list are differences too.
pub(crate) fn differs(api: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    Check { api, names_all: true }.differs(schema, value, at)
}

/// Where a value contradicts a schema; fields that the schema does not list are allowed unless it
/// forbids them.
pub(crate) fn contradicts(api: &Value, schema: &Value, value: &Value) -> Option<String> {
    Check { api, names_all: false }.differs(schema, value, "body")
}

struct Check<'a> {
    api: &'a Value,
    /// Whether schemas must list all fields.
    names_all: bool,
}

impl Check<'_> {
    fn differs(&self, schema: &Value, value: &Value, at: &str) -> Option<String> {
        let schema = resolved(self.api, schema);
        if let Some(choices) = schema["oneOf"].as_array() {
            let all: Option<Vec<String>> =
                choices.iter().map(|choice| self.differs(choice, value, at)).collect();
            return all.map(|all| all.join(" and "));
        }
        if schema["enum"].as_array().is_some_and(|all| !all.contains(value)) {
            return Some(format!("{at} is {value}, expected {}", schema["enum"]));
        }
        let types = match &schema["type"] {
            Value::Array(types) => types.clone(),
            Value::Null => return None,
            one => vec![one.clone()],
        };
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let fits = |t: &Value| t == kind || (t == "number" && kind == "integer");
        if !types.iter().any(fits) {
            return Some(format!("{at} is {value}, expected {types:?}"));
        }
        beyond(schema, value, at).or_else(|| self.inside(schema, value, at))
    }

    fn inside(&self, schema: &Value, value: &Value, at: &str) -> Option<String> {
        match value {
            Value::Array(items) => {
                let mut items = items.iter();
                items.find_map(|item| self.differs(&schema["items"], item, &format!("{at}[]")))
            }
            Value::Object(members) => {
                let required = schema["required"].as_array().into_iter().flatten();
                let mut missing =
                    required.filter(|key| !members.contains_key(key.as_str().unwrap()));
                missing.next().map(|key| format!("{at} lacks {key}")).or_else(|| {
                    members.iter().find_map(|(key, value)| self.member(schema, (key, value), at))
                })
            }
            _ => None,
        }
    }

    fn member(&self, schema: &Value, (key, value): (&str, &Value), at: &str) -> Option<String> {
        let known = match &schema["properties"][key] {
            Value::Null => &schema["additionalProperties"],
            known => known,
        };
        match known {
            Value::Null if self.names_all => Some(format!("{at} has {key}")),
            Value::Bool(false) => Some(format!("{at} has {key}")),
            Value::Null | Value::Bool(true) => None,
            known => self.differs(known, value, &format!("{at}.{key}")),
        }
    }
}

/// The limit that a value of the right type exceeds, if any.
fn beyond(schema: &Value, value: &Value, at: &str) -> Option<String> {
    let length = value.as_str().map(str::len).or_else(|| value.as_array().map(Vec::len));
    let length = length.map(|length| length as f64);
    for (limit, given, is_least) in [
        ("minimum", value.as_f64(), true),
        ("maximum", value.as_f64(), false),
        ("minLength", length, true),
        ("maxLength", length, false),
        ("minItems", length, true),
        ("maxItems", length, false),
    ] {
        let Some((given, bound)) = given.zip(schema[limit].as_f64()) else { continue };
        if (is_least && given < bound) || (!is_least && given > bound) {
            return Some(format!("{at} is beyond the {limit} {bound}"));
        }
    }
    None
}
