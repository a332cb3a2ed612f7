//! The precedence of sources, and the messages for wrong settings.

use super::sources::FILE_NAME;
use super::*;
use crate::failure::Result;
use std::path::Path;

fn with(file: &str, variables: &[(&str, &str)], flags: Flags<'_>) -> Result<Settings> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join(FILE_NAME), file).expect("the folder is ours");
    let lookup = |name: &str| {
        variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
    };
    resolve(&Flags { data: Some(folder.path()), ..flags }, lookup)
}

#[test]
fn flags_beat_environment_beats_file_beats_defaults() {
    let port = |settings: Settings| settings.http.addr.port();
    let file = "workers = 3\n[http]\naddr = '127.0.0.1:1'\n";
    let variables = [("RADEON_HTTP__ADDR", "127.0.0.1:2"), ("RADEON_DEBUG", "info")];
    let flags = || Flags { http: "127.0.0.1:3".parse().ok(), ..Flags::default() };
    assert_eq!(with("", &[], Flags::default()).map(port).ok(), Some(8000));
    assert_eq!(with(file, &[], Flags::default()).map(port).ok(), Some(1));
    assert_eq!(with(file, &variables, Flags::default()).map(port).ok(), Some(2));
    let all = with(file, &variables, flags()).expect("every source is right");
    assert_eq!((all.http.addr.port(), all.workers), (3, 3));
    let simd = with("simd = 'scalar'", &[("RADEON_SIMD", "avx2")], Flags::default());
    assert_eq!(simd.map(|settings| settings.simd).ok(), Some(Simd::Avx2));
    assert_eq!(all.frigate.addr, None);
    let frigate = with("[frigate]\naddr = '127.0.0.1:5'\n", &[], Flags::default());
    let frigate = frigate.map(|settings| settings.frigate).ok();
    let addr = "127.0.0.1:5".parse().ok();
    assert_eq!(frigate, Some(Frigate { addr, timeout_ms: 180 }));
    assert_eq!(all.immich.addr, None);
    let immich = with("", &[("RADEON_IMMICH__ADDR", "127.0.0.1:5")], Flags::default());
    assert_eq!(immich.map(|settings| settings.immich).ok(), Some(Immich { addr }));
    assert_eq!(all.http.body_bytes_max, 64 << 20, "a table of the file keeps its defaults");
}

#[test]
fn wrong_settings_name_the_key() {
    for (file, variables, part) in [
        ("wrokers = 3", &[][..], "wrokers"),
        ("[http]\nport = 80", &[], "port"),
        ("workers = 'many'", &[], "workers"),
        ("workers = ", &[], "radeon-cluster.toml"),
        ("", &[("RADEON_WORKERS", "many")], "workers"),
        ("", &[("RADEON_HTTP__ADDR", "nowhere")], "is not an address"),
        ("", &[("RADEON_SIMD", "neon")], "neon"),
        ("simd = 'sse'", &[], "sse"),
        ("log_format = 'xml'", &[], "xml"),
        ("[quic]\nadvertise = 'maybe'", &[], "maybe"),
        ("[quic]\ncertificate_life_s = 1", &[], "certificate_life_s is 1"),
        ("", &[("RADEON_QUIC__ABSENCE_MAX_S", "31536001")], "quic.absence_max_s is 31536001"),
        ("batch_max = 0", &[], "batch_max is 0, expected 1 to 256"),
        ("[frigate]\ntimeout_ms = 0", &[], "frigate.timeout_ms is 0, expected 1 to 60000"),
        ("", &[("RADEON_FRIGATE__ADDR", "tcp://*:5555")], "is not an address"),
        ("[otlp]\nendpoint = 'localhost:4318'", &[], "otlp.endpoint is \"localhost:4318\""),
        ("", &[("RADEON_OTLP__RATIO", "2")], "otlp.ratio is 2, expected 0 to 1"),
        ("", &[("RADEON_BATCH_DELAY_MS", "2000")], "batch_delay_ms is 2000"),
        ("results_disk_share = 1.5", &[], "results_disk_share is 1.5, expected above 0 up to 1"),
        ("", &[("RADEON_RESULTS_KEPT_FOR_S", "0")], "results_kept_for_s is 0, expected 1 to"),
        ("input_bytes_max = 0", &[], "input_bytes_max is 0, expected 65536 to"),
        ("", &[("RADEON_HTTP__BODY_BYTES_MAX", "10")], "http.body_bytes_max is 10, expected"),
    ] {
        let failure = with(file, variables, Flags::default()).expect_err("it is wrong");
        assert_eq!(failure.code, "settings_invalid");
        assert!(failure.message.contains(part), "{:?} lacks {part:?}", failure.message);
    }
}

#[test]
fn only_a_name_that_there_is_not_has_one_that_is_meant() {
    for (file, meant) in
        [("wrokers = 3", Some("did you mean workers? ")), ("workers = 'two'", None)]
    {
        let failure = with(file, &[], Flags::default()).expect_err("it is wrong");
        let hint = failure.hint.expect("all names");
        assert_eq!(hint.starts_with("did you mean"), meant.is_some(), "{hint}");
        assert!(meant.is_none_or(|meant| hint.starts_with(meant)), "{hint}");
        assert!(!failure.message.contains("workers_max"), "{:?}", failure.message);
    }
}

#[test]
fn a_named_folder_is_found_whatever_else_is_wrong() {
    let named = Flags { data: Some(Path::new("/there")), ..Flags::default() };
    let wrong = |name: &str| (name == "RADEON_WORKERS").then(|| "many".to_owned());
    assert_eq!(data_folder(&named, wrong).ok(), Some(PathBuf::from("/there")));
    let failure = data_folder(&Flags::default(), wrong).expect_err("it is wrong");
    assert_eq!(failure.code, "settings_invalid");
}

#[test]
fn a_named_file_has_to_be_there() {
    let flags = Flags { config: Some(Path::new("/nonexistent.toml")), ..Flags::default() };
    let failure = resolve(&flags, |_| None).expect_err("there is no such file");
    assert_eq!(failure.code, "file_not_found");
}

#[test]
fn a_variable_that_is_almost_a_setting_is_noticed_and_a_drivers_is_not() {
    let names =
        ["RADEON_WORKRES", "RADEON_DEBUG", "RADEON_HTTP_ADDR", "RADEON_KEY", "HOME", "RADEON_"];
    let found = misspelt(names.iter().map(|name| (*name).to_owned()));
    let found: Vec<_> = found.iter().map(|(name, meant)| (name.as_str(), *meant)).collect();
    assert_eq!(
        found,
        [("RADEON_WORKRES", "RADEON_WORKERS"), ("RADEON_HTTP_ADDR", "RADEON_HTTP__ADDR")]
    );
}
