//! Checks that a round kept its promises. `stateright` looks for an order of each key's requests that a single
//! coordinator could have answered.

use super::client::Answer;
use super::history::{Asked, Event};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};
use std::collections::{BTreeMap, BTreeSet};

/// The first number of requests without an answer, which are tried last.
const UNANSWERED: u64 = 1 << 32;

/// A key's task, as a single coordinator would keep it.
#[derive(Debug, Clone, Default)]
struct Task {
    id: Option<String>,
    cancel_asked: bool,
    end: Option<String>,
}

/// A request, and the task that it names.
type Op = (Asked, Option<String>);

impl SequentialSpec for Task {
    type Op = Op;
    type Ret = Answer;

    /// Applies a request without an answer, whose effect may have happened unseen.
    fn invoke(&mut self, (asked, _): &Op) -> Answer {
        self.cancel_asked |= *asked == Asked::Cancel;
        Answer::Lost(String::new())
    }

    /// A task ends at any time. Its first end may be any and stays the same; only a cancelled task may end as
    /// cancelled.
    fn is_valid_step(&mut self, (asked, task): &Op, answer: &Answer) -> bool {
        self.cancel_asked |= *asked == Asked::Cancel;
        match answer {
            Answer::Accepted(id) => self.id.get_or_insert_with(|| id.clone()) == id,
            Answer::Open => self.id == *task && self.end.is_none(),
            Answer::Ended(end) => {
                let may = self.cancel_asked || !end.starts_with("cancelled");
                self.id == *task && may && self.end.get_or_insert_with(|| end.clone()) == end
            }
            _ => false,
        }
    }
}

/// The broken laws, in words.
pub(super) fn judge(events: &[Event]) -> Vec<String> {
    let mut by_key: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
    for event in events {
        by_key.entry(&event.key).or_default().push(event);
    }
    let mut broken = Vec::new();
    for (key, events) in by_key {
        broken.extend(invariants(key, &events));
        if !is_linearizable(&events) {
            broken.push(format!("the history of key {key} is not linearizable"));
        }
    }
    broken
}

fn invariants(key: &str, events: &[&Event]) -> Vec<String> {
    let mut broken = Vec::new();
    let accepted = events.iter().filter_map(|event| match &event.answer {
        Answer::Accepted(id) => Some(id),
        _ => None,
    });
    let ids: BTreeSet<_> = accepted.collect();
    if ids.len() > 1 {
        broken.push(format!("key {key} stands for {ids:?}"));
    }
    let ends = events.iter().filter_map(|event| match &event.answer {
        Answer::Ended(end) => Some(end),
        _ => None,
    });
    let ends: BTreeSet<_> = ends.collect();
    if ends.len() > 1 {
        broken.push(format!("the task of key {key} ended as {ends:?}"));
    }
    for event in events {
        let Event { at, asked, task, began_us, answer, .. } = event;
        if matches!(answer, Answer::Unknown | Answer::Conflict(_)) {
            broken.push(format!(
                "{asked:?} of key {key}, task {task:?}, at coordinator {at}, {began_us} us after the \
                 round began: {answer:?}"
            ));
        }
    }
    broken
}

/// Whether such an order exists. A refused submission or cancellation says nothing about its effect.
fn is_linearizable(events: &[&Event]) -> bool {
    let mut moments = Vec::new();
    for (number, event) in (0u64..).zip(events) {
        let is_answered =
            matches!(event.answer, Answer::Accepted(_) | Answer::Open | Answer::Ended(_));
        if !is_answered && event.asked == Asked::Look {
            continue;
        }
        // Each request counts as its own caller: times alone order a request after an earlier answer.
        let number = if is_answered { number } else { UNANSWERED + number };
        // Within a microsecond requests come before answers, which permits more orders.
        moments.push((event.began_us, 0, number, event));
        if is_answered {
            moments.push((event.ended_us, 1, number, event));
        }
    }
    moments.sort_by_key(|(at, order, ..)| (*at, *order));
    let mut tester = LinearizabilityTester::new(Task::default());
    for (_, order, number, event) in moments {
        let told = match order {
            0 => tester.on_invoke(number, (event.asked, event.task.clone())).map(drop),
            _ => tester.on_return(number, event.answer.clone()).map(drop),
        };
        if told.is_err() {
            return false;
        }
    }
    tester.is_consistent()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(began_us: u128, ended_us: u128, asked: Asked, answer: Answer) -> Event {
        let task = (asked != Asked::Submit).then(|| "a".to_owned());
        let key = "key".to_owned();
        Event { began_us, ended_us, caller: 0, at: 0, key, asked, task, answer }
    }

    fn accepted(id: &str) -> Answer {
        Answer::Accepted(id.to_owned())
    }

    fn ended(how: &str) -> Answer {
        Answer::Ended(how.to_owned())
    }

    #[test]
    fn what_one_coordinator_alone_would_not_say_is_noticed() {
        use Asked::{Cancel, Look, Submit};
        let lost = || Answer::Lost("gone".to_owned());
        let cases = [
            (true, vec![event(0, 9, Submit, accepted("a")), event(1, 8, Submit, accepted("a"))]),
            (false, vec![event(0, 9, Submit, accepted("a")), event(10, 11, Submit, accepted("b"))]),
            // One caller, within a microsecond.
            (true, vec![event(0, 2, Submit, accepted("a")), event(2, 3, Submit, accepted("a"))]),
            // A submission whose answer was lost may have made the task.
            (true, vec![event(0, 9, Submit, lost()), event(10, 11, Submit, accepted("a"))]),
            (
                false,
                vec![
                    event(0, 1, Submit, accepted("a")),
                    event(2, 3, Look, ended("succeeded")),
                    event(4, 5, Look, Answer::Open),
                ],
            ),
            // Both looks were under way at once.
            (
                true,
                vec![
                    event(0, 1, Submit, accepted("a")),
                    event(2, 5, Look, ended("succeeded")),
                    event(3, 6, Look, Answer::Open),
                ],
            ),
            (
                false,
                vec![event(0, 1, Submit, accepted("a")), event(2, 3, Look, ended("cancelled"))],
            ),
            (
                true,
                vec![
                    event(0, 1, Submit, accepted("a")),
                    event(2, 3, Cancel, lost()),
                    event(4, 5, Look, ended("cancelled")),
                ],
            ),
            (false, vec![event(0, 1, Submit, accepted("a")), event(2, 3, Look, Answer::Unknown)]),
        ];
        for (number, (is_kept, events)) in cases.into_iter().enumerate() {
            let broken = judge(&events);
            assert_eq!(broken.is_empty(), is_kept, "case {number}: {broken:?}");
        }
    }
}
