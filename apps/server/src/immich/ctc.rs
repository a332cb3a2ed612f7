//! CTC decoding: characters from the output steps of a text recogniser.

/// A text, and the mean score of its characters.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) score: f32,
}

/// Takes the likeliest class of each step, merges repeats, and drops class 0, which means no character.
pub(super) fn line<'a>(
    steps: impl Iterator<Item = &'a [f32]>,
    character: impl Fn(usize) -> &'a str,
) -> Line {
    let (mut text, mut sum, mut count) = (String::new(), 0.0, 0_u16);
    let mut last = 0;
    for step in steps {
        let best = step.iter().enumerate().max_by(|(i, a), (j, b)| a.total_cmp(b).then(j.cmp(i)));
        let Some((class, probability)) = best else { continue };
        if class != 0 && class != last {
            text.push_str(character(class));
            sum += probability;
            count = count.saturating_add(1);
        }
        last = class;
    }
    Line { text, score: sum / f32::from(count.max(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_classes_are_one_unless_a_gap_is_between_them() {
        let one = |class: usize, probability: f32| {
            let mut step = vec![0.0; 4];
            step[class] = probability;
            step
        };
        let names = ["", "a", "b", " "];
        for (steps, text, score) in [
            (vec![one(1, 0.5), one(1, 0.9), one(2, 0.7)], "ab", 0.6),
            (vec![one(1, 0.5), one(0, 0.9), one(1, 0.7)], "aa", 0.6),
            (vec![one(0, 0.5), one(2, 0.5), one(3, 0.5), one(2, 0.5), one(0, 0.5)], "b b", 0.5),
            (vec![one(0, 0.9); 3], "", 0.0),
            // Of equal scores, the first class counts.
            (vec![vec![0.25; 4], vec![0.0, 0.5, 0.5, 0.0]], "a", 0.5),
            (vec![], "", 0.0),
        ] {
            let given = line(steps.iter().map(Vec::as_slice), |class| names[class]);
            assert_eq!(given, Line { text: text.to_owned(), score }, "{steps:?}");
        }
    }
}
