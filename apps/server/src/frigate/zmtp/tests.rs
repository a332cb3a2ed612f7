//! A client's bytes, valid and invalid.

use super::*;
use std::time::Duration;
use tokio::io::duplex;

const READY_REQ: &[u8] = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03REQ";

fn session(ready: &[u8], rest: &[u8]) -> Vec<u8> {
    [&greeting()[..], ready, rest].concat()
}

/// Reads one request with its parts, as the listener does; then the client disconnects.
async fn served(bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
    let (mut client, server) = duplex(1 << 20);
    client.write_all(bytes).await.expect("there is room");
    client.shutdown().await.expect("it is open");
    let serving = async {
        let mut peer = Peer::greet(server).await?;
        let mut head = peer.request().await?;
        let mut parts = vec![peer.take(head, 64).await?];
        while head.more {
            head = peer.part().await?;
            parts.push(peer.take(head, 1024).await?);
        }
        peer.answer(&[b"ok".to_vec(), vec![7; 300]]).await?;
        Ok(parts)
    };
    tokio::time::timeout(Duration::from_secs(5), serving).await.expect("it does not hang")
}

#[tokio::test]
async fn a_request_is_read_and_answered() {
    let long = [&[2, 0, 0, 0, 0, 0, 0, 1, 44][..], &[9; 300]].concat();
    let ping = b"\x04\x09\x04PING\x00\x0aab";
    let request = [ping, &b"\x01\x00\x01\x02{}"[..], &long].concat();
    let parts = served(&session(READY_REQ, &request)).await.expect("it is right");
    assert_eq!(parts, [b"{}".to_vec(), vec![9; 300]]);

    let (mut client, server) = duplex(1 << 20);
    client.write_all(&session(READY_REQ, &request)).await.expect("there is room");
    let mut peer = Peer::greet(server).await.expect("a greeting");
    let _ = peer.request().await.expect("behind a ping");
    peer.answer(&[b"ok".to_vec(), vec![7; 300]]).await.expect("it is open");
    drop(peer);
    let mut sent = Vec::new();
    client.read_to_end(&mut sent).await.expect("it has ended");
    let pong = b"\x04\x07\x04PONGab";
    let answer = [b"\x01\x00\x01\x02ok", &b"\x02\0\0\0\0\0\0\x01\x2c"[..], &[7; 300]].concat();
    assert!(sent.starts_with(&greeting()));
    assert!(sent.ends_with(&[&pong[..], &answer].concat()), "{sent:?}");
}

#[tokio::test]
async fn what_is_not_the_protocol_is_refused() {
    let pull = b"\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PULL";
    let huge = b"\x01\x00\x02\x7f\xff\xff\xff\xff\xff\xff\xff";
    let mut plain = session(READY_REQ, b"");
    plain[12..17].copy_from_slice(b"PLAIN");
    for (bytes, part) in [
        (b"GET / HTTP/1.1\r\n\r\n".repeat(8), "no greeting of ZMTP 3"),
        (plain, "other than NULL"),
        (session(pull, b""), "neither REQ nor DEALER"),
        (session(b"\x00\x00", b""), "before the handshake"),
        (session(READY_REQ, b"\x00\x02{}"), "without the empty part"),
        (session(READY_REQ, huge), "expected at most 64"),
        (session(READY_REQ, b"\x01\x00\x08\x00"), "flags 0x08"),
        (session(READY_REQ, b"\x04\x05\x04STOP"), "does not belong here"),
        (session(READY_REQ, b"\x06\x7f\xff\xff\xff\xff\xff\xff\xff"), "expected at most 4096"),
    ] {
        let error = served(&bytes).await.expect_err(part);
        assert!(error.to_string().contains(part), "{error} lacks {part}");
    }
}

#[tokio::test]
async fn damaged_bytes_end_in_an_error_or_a_request() {
    // A linear congruential generator, so that each run has the same damage.
    let mut seed = 7u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(seed >> 33).unwrap_or(0) % below
    };
    let whole = session(READY_REQ, b"\x04\x09\x04PING\x00\x0aab\x01\x00\x01\x02{}\x00\x03abc");
    let (mut read, mut refused) = (0, 0);
    for _ in 0..2_000 {
        let mut bytes = whole.clone();
        for _ in 0..=random(3) {
            let at = random(bytes.len());
            bytes[at] = u8::try_from(random(256)).unwrap_or(0);
        }
        bytes.truncate(bytes.len() - random(4) * random(30));
        match served(&bytes).await {
            Ok(_) => read += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(read > 100 && refused > 100, "{read} were read and {refused} refused");
}
