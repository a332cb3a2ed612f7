//! Models that are reloaded, and changes of their config files, under continuous requests.

use crate::grpc::{client, request as message};
use crate::model_files::{GOOD, INFER, put_version, until_states, watched, write};
use crate::rig::{Answer, PATIENCE, Rig};
use futures_util::StreamExt;
use std::cell::Cell;
use std::time::Duration;
use tokio_stream::iter;

const MODELS: &str = "/api/v1/cluster/models";

/// A rig with the model `clf` and its config file.
async fn start() -> Rig {
    let rig = watched().await;
    write(&rig, "clf", "config.pbtxt", GOOD);
    put_version(&rig, "clf", 1);
    until_states(&rig, "clf", &["ready"]).await;
    rig
}

/// Sends requests over REST, gRPC and a stream until `done`; returns the counts of answers.
async fn ask(rig: &Rig, done: &Cell<bool>) -> [usize; 3] {
    let over_rest = async {
        let mut answered = 0;
        while !done.get() {
            let answer = rig.post("/v2/models/clf/infer", INFER).await;
            assert_eq!(answer.status, 200, "after {answered}: {}", answer.text());
            answered += 1;
        }
        answered
    };
    let over_grpc = async {
        let (mut client, mut answered) = (client(rig, Some(&rig.bearer)), 0);
        while !done.get() {
            client.model_infer(message("clf", [1.0, 2.0])).await.expect("it is answered");
            answered += 1;
        }
        answered
    };
    let over_streams = async {
        let (mut client, mut answered) = (client(rig, Some(&rig.bearer)), 0);
        while !done.get() {
            let messages = iter(vec![message("clf", [1.0, 2.0]); 8]);
            let answers = client.model_stream_infer(messages).await.unwrap().into_inner();
            let answers: Vec<_> = answers.collect().await;
            assert_eq!(answers.len(), 8);
            for answer in answers {
                assert_eq!(answer.unwrap().error_message, "", "after {answered}");
                answered += 1;
            }
        }
        answered
    };
    tokio::join!(over_rest, over_grpc, over_streams).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_lost_while_a_loaded_model_is_loaded_again() {
    let rig = start().await;
    let done = Cell::new(false);
    let loads = async {
        for n in 0..20 {
            let path = ["/v2/repository/models/clf/load".to_owned(), format!("{MODELS}/clf/load")];
            let answer = rig.post(&path[n % 2], "").await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        done.set(true);
    };
    let (answered, ()) = tokio::join!(ask(&rig, &done), loads);
    assert!(answered.iter().all(|count| *count > 0), "{answered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_lost_while_the_file_beside_a_model_changes() {
    let rig = start().await;
    let done = Cell::new(false);
    let changes = async {
        for max in [4, 6, 8, 5, 7] {
            let text = GOOD.replace("max_batch_size: 8", &format!("max_batch_size: {max}"));
            write(&rig, "clf", "config.pbtxt", &text);
            let is_told = |answer: &Answer| answer.json()["deployment"]["batching"]["max"] == max;
            rig.until(&format!("{MODELS}/clf"), is_told).await;
        }
        done.set(true);
    };
    let (answered, ()) = tokio::join!(ask(&rig, &done), changes);
    assert!(answered.iter().all(|count| *count > 0), "{answered:?}");

    // While the file is invalid, each request is refused with the reason, and otherwise none.
    let done = Cell::new(false);
    let asks = async {
        while !done.get() {
            let answer = rig.post("/v2/models/clf/infer", INFER).await;
            let status = answer.status.as_u16();
            let is_told = status == 400 && answer.text().contains("max_batch");
            let is_loading = status == 503 && answer.headers.contains_key("retry-after");
            assert!(status == 200 || is_told || is_loading, "{status}: {}", answer.text());
        }
    };
    let changes = async {
        for _ in 0..3 {
            write(&rig, "clf", "config.pbtxt", "max_batch: 8");
            rig.until("/v2/models/clf", |answer| answer.status == 400).await;
            write(&rig, "clf", "config.pbtxt", GOOD);
            rig.until("/v2/models/clf/ready", |answer| answer.status == 200).await;
        }
        done.set(true);
    };
    tokio::join!(asks, changes);

    // The last invalid file may be acted on only now: the model is then unloaded and loaded once more.
    let answered = async {
        loop {
            let answer = rig.post("/v2/models/clf/infer", INFER).await;
            match answer.status.as_u16() {
                200 => break,
                400 | 503 => tokio::time::sleep(Duration::from_millis(5)).await,
                status => panic!("{status}: {}", answer.text()),
            }
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.expect("the model serves again");
}
