//! HTTP/2 connections that fill their windows: how much they may send before it is read.

use super::frame;
use crate::rig::{PATIENCE, Rig};
use lgp_server::serve_grpc;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The number of connections with wide windows.
const WIDE: usize = 64;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
/// The setting with the window of a stream.
const INITIAL_WINDOW: [u8; 2] = [0, 4];
/// The default of both windows.
const USUAL: u32 = 65_535;

/// Opens a connection; returns the announced windows of its streams and of itself.
async fn open(addr: SocketAddr) -> (TcpStream, u32, u32) {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &[])];
    let ping = frame(PING, 0, 0, &[7; 8]);
    stream.write_all(&[preface.concat(), ping.clone()].concat()).await.unwrap();
    let (mut of_streams, mut own, mut pongs) = (USUAL, USUAL, 0);
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).await.unwrap();
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        match head[3] {
            SETTINGS if head[4] == 0 => {
                let mut settings = payload.chunks(6);
                let found = settings.find(|setting| setting[..2] == INITIAL_WINDOW);
                of_streams = found.map_or(of_streams, |setting| number(&setting[2..]));
            }
            WINDOW_UPDATE => own += number(&payload),
            // The second ping is answered after the server's initial frames.
            PING if pongs > 0 => return (stream, of_streams, own),
            PING => {
                pongs += 1;
                stream.write_all(&ping).await.unwrap();
            }
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_windows_of_many_connections_are_narrow() {
    let rig = Rig::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve_grpc(listener, None, rig.state.clone(), std::future::pending()));
    let mut all = Vec::new();
    for n in 0..WIDE + 8 {
        let opening = tokio::time::timeout(PATIENCE, open(addr));
        let (stream, of_streams, own) = opening.await.expect("an answer in time");
        let expected = if n < WIDE { (1 << 20, 4 << 20) } else { (USUAL / 4, USUAL) };
        assert_eq!((of_streams, own), expected, "connection {n}");
        all.push(stream);
    }
    drop(all);
    let began = Instant::now();
    while open(addr).await.1 == USUAL / 4 {
        assert!(began.elapsed() < PATIENCE, "connections that have ended count");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
