//! A model's two config files: which one counts, what overrides it, and errors in them.

use super::*;
use crate::deployment::testing::repository;

fn write(repository: &Repository, model: &str, file: &str, text: impl AsRef<[u8]>) {
    std::fs::write(repository.root().join(model).join(file), text).expect("ours");
}

#[test]
fn what_an_administrator_says_stands_over_the_file_field_by_field() {
    let (_folder, repository, entry) = repository();
    let name = &entry.name;
    let text = "version_policy = \"all\"\ncache_bytes = 100\n\
                warm_up = [{ shapes = { x = [2] } }]\n\n[batching]\nmax = 4\npreferred = [2]\n";
    write(&repository, name, TOML, text);
    let file = ModelConfig::of(&repository, name).expect("it is good");
    file.check(&repository, &repository.get(name, None).expect("ours")).expect("it fits");
    assert_eq!(Deployment::of(&repository, name).expect("it is good"), file.deployment);
    let said: Deployment =
        serde_json::from_str(r#"{"cache_bytes": 7, "run_limit_ms": 9}"#).expect("ours");
    said.save(&repository, name).expect("it is good");
    let both = Deployment::of(&repository, name).expect("both are good");
    let expected = Deployment {
        cache_bytes: said.cache_bytes,
        run_limit_ms: said.run_limit_ms,
        ..file.deployment
    };
    assert_eq!(both, expected);
    std::fs::remove_file(repository.root().join(name).join(TOML)).expect("ours");
    assert_eq!(Deployment::of(&repository, name).expect("it is good"), said);
}

#[test]
fn a_bad_file_says_which_and_why() {
    let (_folder, repository, entry) = repository();
    let name = &entry.name;
    for (file, text, part) in [
        (TOML, "memory_bytes = 1\nmemory = 1".to_owned(), "line 2: unknown field `memory`"),
        (TOML, "memory_bytes = 1\nmemory_bytes".to_owned(), "line 2"),
        (TOML, "version_policy = \"newest\"".to_owned(), "'newest' is no version policy"),
        (TOML, "x = ".to_owned() + &"[".repeat(10_000), "line 1"),
        (TOML, "#".repeat(70_000), "70000 bytes, expected 65536"),
        (PBTXT, "#".repeat(70_000), "70000 bytes, expected 65536"),
        (PBTXT, "name: \"other\"".to_owned(), "name is 'other'"),
    ] {
        write(&repository, name, file, text);
        let error = ModelConfig::of(&repository, name).expect_err(part).to_string();
        assert!(error.starts_with(&format!("{file} of model '{name}': ")), "{error}");
        assert!(error.contains(part) && error.len() < 1000, "{error}");
        assert!(Deployment::of(&repository, name).is_err());
        let said = Deployment { memory_bytes: Some(1), ..Deployment::default() };
        assert!(said.save(&repository, name).is_err(), "nothing can be put over a bad file");
        std::fs::remove_file(repository.root().join(name).join(file)).expect("ours");
    }
    write(&repository, name, PBTXT, [b'#', 0xff]);
    assert!(ModelConfig::of(&repository, name).is_err(), "it is no text");
    write(&repository, name, PBTXT, "");
    write(&repository, name, TOML, "");
    let error = ModelConfig::of(&repository, name).expect_err("there are two").to_string();
    assert!(error.contains("expected one of them"), "{error}");
    std::fs::remove_file(repository.root().join(name).join(PBTXT)).expect("ours");
    std::fs::create_dir(repository.root().join(name).join(PBTXT)).expect("ours");
    let error = ModelConfig::of(&repository, name).expect_err("it is a folder").to_string();
    assert!(error.contains("no file"), "{error}");
}

#[test]
fn a_file_that_its_model_cannot_follow_is_refused_for_that_version() {
    let (folder, repository, model) = repository();
    let entry = repository.get(&model.name, None).expect("ours");
    for (file, text, part) in [
        (PBTXT, "input { name: \"none\" }", "no such input"),
        (PBTXT, "version_policy { specific { versions: 9 } }", "chooses none of [1]"),
        (TOML, "version_policy = \"9\"", "chooses none of [1]"),
        (TOML, &format!("variants = [\"{}\"]", model.name), "itself"),
    ] {
        write(&repository, &model.name, file, text);
        let config = ModelConfig::of(&repository, &model.name).expect(text);
        let error = config.check(&repository, &entry).expect_err(text).to_string();
        assert!(error.contains(part) && error.contains(file), "{error}");
        std::fs::remove_file(repository.root().join(&model.name).join(file)).expect("ours");
    }
    // A variant may be added later.
    write(&repository, &model.name, TOML, "variants = [\"other\"]");
    let config = ModelConfig::of(&repository, &model.name).expect("it is good");
    config.check(&repository, &entry).expect("there is none yet");
    repository.add("other", folder.path().join("relu.onnx")).expect("a good model");
    config.check(&repository, &entry).expect("it is the same");
}
