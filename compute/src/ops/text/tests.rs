//! Operators on strings.

use super::*;
use crate::testing::{ints, t};

fn texts(dims: &[usize], texts: &[&str]) -> Tensor {
    Tensor::from_strings(dims, texts).unwrap()
}

fn run(op: &dyn Op, inputs: &[&Tensor]) -> Vec<Tensor> {
    let views: Vec<_> = inputs.iter().map(|x| Some(x.view())).collect();
    crate::launch(op, &Context::new(1), &views).unwrap()
}

#[test]
fn strings_join_with_broadcasting() {
    let (a, b) = (texts(&[2, 1], &["a", "b"]), texts(&[3], &["x", "", "z"]));
    let out = run(&StringConcat, &[&a, &b]);
    assert_eq!(out[0], texts(&[2, 3], &["ax", "a", "az", "bx", "b", "bz"]));
    let number = t(&[1], &[1f32]);
    let views = [Some(a.view()), Some(number.view())];
    let error = crate::launch(&StringConcat, &Context::new(1), &views).unwrap_err().to_string();
    assert_eq!(error, "StringConcat: input 1 has dtype f32, which the operator does not take");
}

#[test]
fn strings_split_by_text_or_white_space() {
    for (text, delimiter, most, want) in [
        ("a.b..c", Some("."), None, &["a", "b", "", "c"][..]),
        ("a.b.c", Some("."), Some(1), &["a", "b.c"]),
        ("  a \t b  c ", None, None, &["a", "b", "c"]),
        (" a  b  c ", None, Some(1), &["a", "b  c"]),
        ("", None, None, &[]),
        ("", Some(","), None, &[]),
    ] {
        let op = StringSplit { delimiter: delimiter.map(str::to_owned), cuts_max: most };
        let out = run(&op, &[&texts(&[1], &[text])]);
        assert_eq!(out[0], texts(&[1, want.len()], want), "{text:?}");
        assert_eq!(out[1], ints(&[i64::try_from(want.len()).unwrap()]), "{text:?}");
    }
    let op = StringSplit { delimiter: Some(",".into()), cuts_max: None };
    let out = run(&op, &[&texts(&[2], &["a", "b,c"])]);
    assert_eq!(out[0], texts(&[2, 2], &["a", "", "b", "c"]));
}

#[test]
fn patterns_match_whole_strings() {
    let op = RegexFullMatch::new(r"a|b+").unwrap();
    let out = run(&op, &[&texts(&[4], &["a", "bb", "ab", ""])]);
    assert_eq!(out[0].as_slice::<bool>().unwrap(), [true, true, false, false]);
    assert!(RegexFullMatch::new("(").is_err());
    assert!(RegexFullMatch::new("a)|(b").is_err(), "it ends a group that is not its own");
    for (pattern, want) in [("(?x) a b # (c", [true, false]), ("a|ab", [true, false])] {
        let op = RegexFullMatch::new(pattern).unwrap();
        let out = run(&op, &[&texts(&[2], &["ab", "abc"])]);
        assert_eq!(out[0].as_slice::<bool>().unwrap(), want, "{pattern}");
    }
    assert!(RegexFullMatch::new(r"(\w{1000}){1000}").is_err(), "its automaton is too large");
}

#[test]
fn stop_words_go() {
    let words = texts(&[1, 3], &["The", "cat", "SAT"]);
    let stop_words = vec!["the".to_owned(), "sat".to_owned()];
    for (case, case_sensitive, want) in [
        (CaseChange::Upper, false, &["CAT"][..]),
        (CaseChange::Lower, true, &["the", "cat", "sat"]),
        (CaseChange::None, true, &["The", "cat", "SAT"]),
    ] {
        let op = StringNormalizer { case, case_sensitive, stop_words: stop_words.clone() };
        assert_eq!(run(&op, &[&words])[0], texts(&[1, want.len()], want));
    }
    let all = StringNormalizer { stop_words: vec!["CAT".into()], ..Default::default() };
    assert_eq!(run(&all, &[&texts(&[1], &["cat"])])[0], texts(&[1], &[""]));
}

#[test]
fn n_grams_are_counted_with_words_left_out() {
    let op = |weighting, skips_max, lengths| {
        let op = TfIdfVectorizer {
            weighting,
            lengths,
            skips_max,
            counts: vec![0, 2],
            columns: vec![0, 1, 2, 3],
            pool: NGrams::Ints(vec![2, 3, 5, 4, 6, 7]),
            weights: vec![0.5, 2., 3., 4.],
        };
        op.checked().unwrap()
    };
    let x = ints(&[5, 2, 4, 3, 6, 7, 2]);
    for (weighting, skips, lengths, want) in [
        (TfIdfWeighting::Tf, 0, (1, 2), [2f32, 1., 0., 1.]),
        (TfIdfWeighting::Tf, 1, (2, 2), [0., 0., 1., 1.]),
        (TfIdfWeighting::Idf, 0, (1, 1), [0.5, 2., 0., 0.]),
        (TfIdfWeighting::TfIdf, 0, (1, 2), [1., 2., 0., 4.]),
    ] {
        assert_eq!(run(&op(weighting, skips, lengths), &[&x])[0], t(&[4], &want));
    }
    let broken = TfIdfVectorizer { counts: vec![0, 9], ..op(TfIdfWeighting::Tf, 0, (1, 2)) };
    assert!(broken.checked().is_err());
}
