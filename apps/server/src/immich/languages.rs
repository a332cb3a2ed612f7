//! Maps Immich's names of languages (Weblate's codes) to FLORES-200's codes, which NLLB models expect before a
//! text.

/// Models with this prefix expect a language before the text.
const OF_NLLB: &str = "nllb";
/// The assumed language if a text's language is unknown.
const ENGLISH: &str = "eng_Latn";
/// The most characters of an unknown language in the log.
const SHOWN_CHARS_MAX: usize = 32;

/// Immich's own codes, by its server's name of the language: with a hyphen, or in earlier versions with an
/// underscore. For Japanese, FLORES-200 has another code; Immich's is kept so that embeddings equal those of its
/// own service.
const CODES: [(&str, &str); 61] = [
    ("af", "afr_Latn"),
    ("ar", "arb_Arab"),
    ("az", "azj_Latn"),
    ("be", "bel_Cyrl"),
    ("bg", "bul_Cyrl"),
    ("ca", "cat_Latn"),
    ("cs", "ces_Latn"),
    ("da", "dan_Latn"),
    ("de", "deu_Latn"),
    ("el", "ell_Grek"),
    ("en", ENGLISH),
    ("es", "spa_Latn"),
    ("et", "est_Latn"),
    ("fa", "pes_Arab"),
    ("fi", "fin_Latn"),
    ("fr", "fra_Latn"),
    ("he", "heb_Hebr"),
    ("hi", "hin_Deva"),
    ("hr", "hrv_Latn"),
    ("hu", "hun_Latn"),
    ("hy", "hye_Armn"),
    ("id", "ind_Latn"),
    ("it", "ita_Latn"),
    ("ja", "jpn_Hira"),
    ("kmr", "kmr_Latn"),
    ("ko", "kor_Hang"),
    ("lb", "ltz_Latn"),
    ("lt", "lit_Latn"),
    ("lv", "lav_Latn"),
    ("mfa", "zsm_Latn"),
    ("mk", "mkd_Cyrl"),
    ("mn", "khk_Cyrl"),
    ("mr", "mar_Deva"),
    ("ms", "zsm_Latn"),
    ("nb-NO", "nob_Latn"),
    ("nb_NO", "nob_Latn"),
    ("nl", "nld_Latn"),
    ("nn", "nno_Latn"),
    ("pl", "pol_Latn"),
    ("pt", "por_Latn"),
    ("pt-BR", "por_Latn"),
    ("pt_BR", "por_Latn"),
    ("ro", "ron_Latn"),
    ("ru", "rus_Cyrl"),
    ("sk", "slk_Latn"),
    ("sl", "slv_Latn"),
    ("sr-Cyrl", "srp_Cyrl"),
    ("sr_Cyrl", "srp_Cyrl"),
    ("sv", "swe_Latn"),
    ("ta", "tam_Taml"),
    ("te", "tel_Telu"),
    ("th", "tha_Thai"),
    ("tr", "tur_Latn"),
    ("uk", "ukr_Cyrl"),
    ("ur", "urd_Arab"),
    ("vi", "vie_Latn"),
    ("zh-CN", "zho_Hans"),
    ("zh-Hans", "zho_Hans"),
    ("zh-TW", "zho_Hant"),
    ("zh_Hant", "zho_Hant"),
    ("zh_SIMPLIFIED", "zho_Hans"),
];

/// The language before a text for this model; empty for most models, and if the request has no language.
pub(super) fn prefix(model: &str, language: Option<&str>) -> &'static str {
    match language {
        Some(language) if model.starts_with(OF_NLLB) => code(language).unwrap_or_else(|| {
            let shown: String = language.chars().take(SHOWN_CHARS_MAX).collect();
            tracing::warn!(model, language = ?shown, "a language is not known, and taken for English");
            ENGLISH
        }),
        _ => "",
    }
}

/// The code of a language, or of the language without its country: `de` for `de-AT`.
fn code(language: &str) -> Option<&'static str> {
    let find = |wanted: &str| CODES.iter().find(|(own, _)| *own == wanted).map(|(_, code)| *code);
    find(language).or_else(|| find(language.split('-').next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_have_their_codes() {
        for (language, expected) in [
            ("de", Some("deu_Latn")),
            ("de-AT", Some("deu_Latn")),
            ("pt-BR", Some("por_Latn")),
            ("pt_BR", Some("por_Latn")),
            ("nb-NO", Some("nob_Latn")),
            ("sr-Cyrl", Some("srp_Cyrl")),
            ("zh-TW", Some("zho_Hant")),
            ("zh_SIMPLIFIED", Some("zho_Hans")),
            // Without the country, it is unknown too.
            ("zh-HK", None),
            ("sr", None),
            ("DE", None),
            ("de_AT", None),
            ("", None),
            ("-", None),
        ] {
            assert_eq!(code(language), expected, "{language:?}");
        }
    }

    #[test]
    fn each_language_is_there_once_and_has_a_code_of_the_right_form() {
        for pair in CODES.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{pair:?} are in order");
        }
        for (language, code) in CODES {
            let (tongue, script) = code.split_once('_').expect(code);
            let small = |text: &str| text.chars().all(|c| c.is_ascii_lowercase());
            let (first, rest) = script.split_at(1);
            let is_right = tongue.len() == 3 && small(tongue) && script.len() == 4;
            assert!(
                is_right && first.chars().all(|c| c.is_ascii_uppercase()),
                "{language}: {code}"
            );
            assert!(small(rest), "{language}: {code}");
        }
    }

    #[test]
    fn only_models_of_nllb_and_told_languages_have_a_prefix() {
        for (model, language, expected) in [
            ("nllb-clip-base-siglip__v1.textual", Some("de"), "deu_Latn"),
            ("nllb-clip-base-siglip__v1.textual", Some("tlh"), ENGLISH),
            ("nllb-clip-base-siglip__v1.textual", None, ""),
            ("ViT-B-32__openai.textual", Some("de"), ""),
            ("my-nllb.textual", Some("de"), ""),
        ] {
            assert_eq!(prefix(model, language), expected, "{model} {language:?}");
        }
    }
}
