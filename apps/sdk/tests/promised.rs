//! Limits the number of names that the SDK promises, because each keeps its meaning until the next major version,
//! and checks that all are in `lib.rs`.

/// The most names that are promised.
const NAMES_MAX: usize = 60;
const LIB: &str = include_str!("../src/lib.rs");

/// The names that a `lib.rs` promises, as `module::Name`: those in its `pub use` lists, in modules and at the root.
///
/// # Errors
/// The first public item whose names are not in this text.
fn promised(lib: &str) -> Result<Vec<String>, String> {
    let lines = lib.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let code = lines.collect::<Vec<_>>().join(" ");
    let (mut names, mut module) = (Vec::new(), String::new());
    for item in code.split("pub ").skip(1) {
        if let Some((name, _)) = item.strip_prefix("mod ").and_then(|rest| rest.split_once(" {")) {
            module = format!("{name}::");
            continue;
        }
        let listed = item.strip_prefix("use ").and_then(|rest| rest.split_once(';'));
        let Some((list, behind)) = listed else {
            let start: String = item.chars().take(40).collect();
            return Err(format!("`pub {start}` is neither `pub mod NAME {{` nor `pub use`"));
        };
        names.extend(reexported(list)?.into_iter().map(|name| format!("{module}{name}")));
        if behind.trim_start().starts_with('}') {
            module.clear();
        }
    }
    Ok(names)
}

/// `b` and `d` of `path::{a as b, d}`, or `b` of `path::b`.
fn reexported(list: &str) -> Result<Vec<&str>, String> {
    let items = list.split_once('{').map_or(list, |(_, items)| items.trim_end_matches([' ', '}']));
    if items.contains(['*', '{']) {
        return Err(format!("`pub use {list}` does not list each name by itself"));
    }
    let items = items.split(',').map(str::trim).filter(|item| !item.is_empty());
    Ok(items.map(|item| item.rsplit([' ', ':']).next().unwrap_or(item)).collect())
}

#[test]
fn few_names_are_promised() {
    let names = promised(LIB).expect("lib.rs lists each name");
    assert!(
        names.len() <= NAMES_MAX,
        "lgp-sdk promises {} names, at most {NAMES_MAX} are wanted. A name that only this repository \
         needs is imported from the crate of its layer, as in lgp_distributed::WorkerInfo. Now there \
         are:\n{}",
        names.len(),
        names.join("\n")
    );
}

#[test]
fn each_name_is_counted_once_where_it_stands() {
    let lib = "\
        //! pub use of::docs;\nmod inner;\npub use inner::Root;\n\
        /// Things.\npub mod things {\n    \
        pub use inner::{\n        Error as ThingError, Thing,\n    };\n    pub use other::one;\n}\n\
        pub use inner::Last;\npub(crate) use inner::hidden;\n";
    let expected = ["Root", "things::ThingError", "things::Thing", "things::one", "Last"];
    assert_eq!(promised(lib).expect("each is listed"), expected);
    for (hiding, part) in [
        ("pub use inner::*;", "does not list each name"),
        ("pub use inner::{a::{b, c}, d};", "does not list each name"),
        ("pub mod elsewhere;", "neither `pub mod NAME {` nor `pub use`"),
        ("pub mod things { pub fn added() {} }", "`pub fn added()"),
        ("pub struct Added;", "`pub struct Added;"),
    ] {
        let error = promised(hiding).expect_err(hiding);
        assert!(error.contains(part), "{error}");
    }
}
