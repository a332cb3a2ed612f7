//! Work that ends with its coordinator: inferences, and tasks that are not durable.

use super::{AGAIN, Load, VOLATILE};
use crate::chaos::ledger::Breach;
use crate::chaos::rest::{Answer, Body};
use crate::relay::Random;
use serde_json::json;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

impl Load {
    /// An inference must give its result, or an error with a reason.
    pub(super) fn infer(&self, random: &mut Random) {
        let picture = self.draw.picture(random);
        let (begun, lives) = (Instant::now(), self.lives.load(SeqCst));
        let answer = self.rest.infer(self.pictures.pixels(picture));
        match (&answer, answer.code()) {
            (Answer::Said(200, value), _) => {
                if self.pictures.inferred(picture, value) {
                    self.tell("infer: result");
                    self.succeeded(begun);
                } else {
                    self.broken(Breach::Wrong, format!("an inference answered {value}"));
                }
            }
            // Refusals of this interface have words but no codes.
            (Answer::Said(503, _), Some(_)) => self.tell("infer: an error that says why"),
            (Answer::Gone(_), _) if self.was_away(lives) => self.tell("infer: coordinator gone"),
            (other, _) => {
                let took = begun.elapsed();
                let what = format!("an inference was met with {other:?} after {took:?}");
                self.broken(Breach::Other, what);
            }
        }
    }

    /// A task that is not durable must end, or is gone with its coordinator.
    pub(super) fn volatile(&self, random: &mut Random) {
        let job = self.draw.short(random);
        let (begun, lives) = (Instant::now(), self.lives.load(SeqCst));
        let mut raw = Vec::new();
        let inputs = job.inputs(&self.pictures, &mut raw);
        let task = json!({ "model": job.model(), "inputs": inputs, "priority": "high" });
        let body = Body { json: task.to_string().into_bytes(), raw };
        let answer = self.rest.submit("tasks", &body);
        let id = match (&answer, answer.code()) {
            (Answer::Said(202, value), _) => value["task_id"].as_str().unwrap_or("?").to_owned(),
            (Answer::Said(503, _), Some(code)) => return self.tell(format!("task: {code}")),
            (Answer::Gone(_), _) if self.was_away(lives) => {
                return self.tell("task: coordinator gone");
            }
            (other, _) => {
                let what = format!("a submission was met with {other:?}");
                return self.broken(Breach::Other, what);
            }
        };
        while begun.elapsed() < VOLATILE {
            match self.rest.task(&id) {
                Ok(told) if told.is_open() => {}
                Ok(told) => match (told.state.as_str(), told.error["code"].as_str()) {
                    ("succeeded", _)
                        if told
                            .outputs
                            .as_deref()
                            .is_some_and(|o| job.right(&self.pictures, o)) =>
                    {
                        self.succeeded(begun);
                        return self.tell("task: result");
                    }
                    ("failed", Some(code)) => return self.tell(format!("task: failed, {code}")),
                    _ => {
                        return self.broken(Breach::Wrong, format!("{job:?} became {told:?}"));
                    }
                },
                Err(Answer::Said(404 | 410, _)) if self.was_away(lives) => {
                    return self.tell("task: gone with its coordinator");
                }
                Err(Answer::Said(503, _)) => {}
                Err(Answer::Gone(_)) if self.was_away(lives) => {}
                Err(other) => {
                    let what = format!("task {id} was asked for and met with {other:?}");
                    return self.broken(Breach::Lost, what);
                }
            }
            std::thread::sleep(AGAIN);
        }
        self.broken(Breach::Late, format!("task {id} did not end within {VOLATILE:?}"));
    }
}
