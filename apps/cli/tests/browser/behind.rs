//! The dashboard behind a proxy below a prefix, as where several services share an address.

use crate::driver::{Browser, DESK};
use std::io::{BufRead, BufReader, Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

const PREFIX: &str = "/gpu";

/// Takes requests below the prefix and passes them on without it; others get 404.
fn proxy(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = listener.local_addr().expect("bound");
    // The thread ends with the process; no client connects after the test.
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            std::thread::spawn(move || pass(client, to));
        }
    });
    at
}

/// One request: the connection is closed after its answer.
fn pass(client: TcpStream, to: SocketAddr) -> Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let Some(head) = head.split_once(PREFIX).filter(|(method, _)| !method.contains('\r')) else {
        return (&client).write_all(
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        );
    };
    let head = format!("{}{}", head.0, head.1.replace("keep-alive", "close"));
    let length = head
        .lines()
        .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut server = TcpStream::connect(to)?;
    server.write_all(head.as_bytes())?;
    std::io::copy(&mut reader.take(length.unwrap_or(0)), &mut server)?;
    std::io::copy(&mut server, &mut &client)?;
    client.shutdown(Shutdown::Both)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_works_below_a_prefix() {
    let Some(browser) = Browser::start(DESK, "1").await else { return };
    let link = browser.cluster.run(&["dashboard"]).json();
    let link = link["url"].as_str().expect("an address").to_owned();
    let server = link.trim_start_matches("http://").split('/').next().unwrap_or_default();
    let at = proxy(server.parse().expect("an address"));
    let below = link.replace(server, &format!("{at}{PREFIX}"));
    browser.client.goto(&below).await.expect("reached");
    browser.shows("main", "1 worker is ready").await;
    browser.shows("main", "What happened of late").await;
    for (page, part) in
        [("Machines", "local-1"), ("Models", "digits, version 1"), ("Log", "worker joined")]
    {
        browser.open(page).await;
        browser.shows("main", part).await;
    }
    browser.is_quiet().await;
}
