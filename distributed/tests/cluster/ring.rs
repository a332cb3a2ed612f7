//! Rings over real QUIC: results, mismatched calls, and lost ranks.

use crate::common::coordinator;
use half::{bf16, f16};
use lgp_distributed::{
    Coordinator, Error, Identity, MeetingRefusal, Pki, Result, Ring, RingConfig, RingElement,
    RingError, RingPeers, Role,
};
use lgp_memory::Reduction;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Long enough for any busy machine.
const LONG: Duration = Duration::from_secs(60);

fn identity(pki: &Pki, rank: u32) -> Identity {
    pki.issue_worker(&format!("w{rank}")).unwrap()
}

fn config(coordinator: &Coordinator, pki: &Pki, rank: u32, size: u32) -> RingConfig {
    let peers = RingPeers::Coordinator(coordinator.quic_addr());
    RingConfig { timeout: LONG, ..RingConfig::new(identity(pki, rank), "g", (rank, size), peers) }
}

/// Runs `work` for all ranks at the same time; returns the results by rank.
async fn all<T, R: Send + 'static, F: Future<Output = R> + Send + 'static>(
    ranks: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> F,
) -> Vec<R> {
    let running: Vec<_> = ranks.into_iter().map(|rank| tokio::spawn(work(rank))).collect();
    let mut results = Vec::new();
    for rank in running {
        results.push(rank.await.unwrap());
    }
    results
}

async fn rings(coordinator: &Coordinator, pki: &Pki, size: u32, timeout: Duration) -> Vec<Ring> {
    let configs = (0..size).map(|r| RingConfig { timeout, ..config(coordinator, pki, r, size) });
    all(configs, |config| async { Ring::join(config).await.unwrap() }).await
}

fn ring_error<T: std::fmt::Debug>(result: Result<T>) -> RingError {
    match result {
        Err(Error::Ring(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// A rank's elements. Their sizes differ, so that another order of additions gives other bits.
fn elements(rank: usize, len: usize) -> Vec<f32> {
    let at = |i: usize| ((i * 7919 + rank * 104_729) % 1000) as f32 - 500.;
    (0..len).map(|i| at(i) * 10f32.powi((i % 7) as i32 - 3 + rank as i32)).collect()
}

/// Elements of part `p` are added up in the order of ranks `p + 1`, … `p`.
fn plain_sum(n: usize, len: usize) -> Vec<f32> {
    let data: Vec<Vec<f32>> = (0..n).map(|rank| elements(rank, len)).collect();
    let part = |i: usize| (0..n).rfind(|p| p * len / n <= i).unwrap();
    let sum = |i: usize| (1..=n).map(|k| data[(part(i) + k) % n][i]).reduce(|a, b| a + b).unwrap();
    (0..len).map(sum).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_rank_gets_the_bits_of_the_plain_sum() {
    let (coordinator, pki) = coordinator().await;
    for n in 1..=5usize {
        let ranks = rings(&coordinator, &pki, n as u32, LONG).await;
        // The last length needs more than one frame for each part.
        let lens = [0, 1, 2, 3, 7, 1000, if n == 3 { 400_003 } else { 10_007 }];
        let results = all(ranks, move |mut ring| async move {
            let (rank, mut results) = (ring.rank() as usize, Vec::new());
            for len in lens {
                let mut data = elements(rank, len);
                ring.all_reduce(&mut data, Reduction::Sum).await.unwrap();
                results.push(data);
            }
            ring.leave().await.unwrap();
            results
        });
        for (rank, results) in results.await.into_iter().enumerate() {
            for (len, result) in lens.into_iter().zip(results) {
                let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
                assert!(bits(result) == bits(plain_sum(n, len)), "rank {rank} of {n}, {len}");
            }
        }
    }
}

/// Checks each type's sum of `rank + i` over three ranks.
async fn sums<T: RingElement + PartialEq + std::fmt::Debug>(ring: &mut Ring, of: fn(u8) -> T) {
    let rank = u8::try_from(ring.rank()).unwrap();
    let own: Vec<T> = (0..20).map(|i| of(i + rank)).collect();
    let expected = |f: fn(u8) -> u8| (0..20).map(|i| of(f(i))).collect::<Vec<T>>();
    let mut data = own.clone();
    ring.all_reduce(&mut data, Reduction::Sum).await.unwrap();
    assert_eq!(data, expected(|i| 3 * i + 3));
    let mut data = own.clone();
    let part = ring.reduce_scatter(&mut data, Reduction::Mean).await.unwrap();
    assert_eq!(part, usize::from(rank) * 20 / 3..(usize::from(rank) + 1) * 20 / 3);
    assert_eq!(data[part.clone()], expected(|i| i + 1)[part]);
    for (how, by) in [(Reduction::Min, 0), (Reduction::Max, 2)] {
        let mut data = own.clone();
        ring.all_reduce(&mut data, how).await.unwrap();
        assert_eq!(data, (0..20).map(|i| of(i + by)).collect::<Vec<T>>());
    }
    for root in 0..3u8 {
        let mut data = own.clone();
        ring.broadcast(&mut data, root.into()).await.unwrap();
        assert_eq!(data, (0..20).map(|i| of(i + root)).collect::<Vec<T>>());
    }
    let all = ring.all_gather(&own).await.unwrap();
    assert_eq!(all, (0..3).flat_map(|r| (0..20).map(move |i| of(i + r))).collect::<Vec<T>>());
    ring.barrier().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_collective_takes_every_type() {
    let (coordinator, pki) = coordinator().await;
    let ranks = rings(&coordinator, &pki, 3, LONG).await;
    all(ranks, |mut ring| async move {
        sums::<f32>(&mut ring, f32::from).await;
        sums::<f64>(&mut ring, f64::from).await;
        sums::<i32>(&mut ring, i32::from).await;
        sums::<i64>(&mut ring, i64::from).await;
        sums::<f16>(&mut ring, f16::from).await;
        sums::<bf16>(&mut ring, |i| bf16::from_f32(i.into())).await;
        // 1 alone does not change 2048 in f16, but 2 does: the sum must not be rounded in between.
        let mut small = vec![f16::from_f32(if ring.rank() == 0 { 2048. } else { 1. }); 3];
        ring.all_reduce(&mut small, Reduction::Sum).await.unwrap();
        assert_eq!(small, [f16::from_f32(2050.); 3]);
        ring.leave().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_argument_is_refused_and_the_ring_goes_on() {
    let (coordinator, pki) = coordinator().await;
    all(rings(&coordinator, &pki, 2, LONG).await, |mut ring| async move {
        let error = ring_error(ring.broadcast(&mut [1f32], 2).await);
        assert_eq!(error.to_string(), "root 2, expected a rank below 2");
        ring.barrier().await.unwrap();
        ring.leave().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_do_not_fit_together_fail_at_every_rank() {
    let (coordinator, pki) = coordinator().await;
    for case in 0..7 {
        let ranks = rings(&coordinator, &pki, 3, LONG).await;
        let results = all(ranks, move |mut ring| async move {
            let (mut seven, sum) = (vec![1f32; 7], Reduction::Sum);
            let other = ring.rank() == 1;
            let result = match case {
                _ if !other && case < 5 => ring.all_reduce(&mut seven, sum).await,
                0 => ring.all_reduce(&mut [1f32; 8], sum).await,
                1 => ring.all_reduce(&mut [1i32; 7], sum).await,
                2 => ring.all_reduce(&mut seven, Reduction::Max).await,
                3 => ring.barrier().await,
                4 => ring.all_gather(&seven).await.map(drop),
                5 => ring.broadcast(&mut seven, u32::from(other)).await,
                _ if other => ring.all_reduce(&mut seven[..0], sum).await,
                _ => ring.barrier().await,
            };
            let error = ring_error(result);
            // The error is permanent.
            assert_eq!(ring_error(ring.barrier().await), error);
            assert_eq!(ring.fault(), Some(&error));
            error
        });
        let errors = results.await;
        let fits =
            |e: &RingError| matches!(e, RingError::Mismatch { .. } | RingError::Ended { .. });
        assert!(errors.iter().all(fits), "case {case}: {errors:?}");
        let noticed = |e: &RingError| matches!(e, RingError::Mismatch { .. });
        assert!(errors.iter().any(noticed), "case {case}: {errors:?}");
    }
}

/// Reduces until that fails; returns the error and its time.
async fn until_failure(mut ring: Ring, len: usize) -> (RingError, Instant) {
    let mut data = vec![1f32; len];
    loop {
        if let Err(error) = ring.all_reduce(&mut data, Reduction::Max).await {
            return (ring_error(Err::<(), _>(error)), Instant::now());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_rank_fails_all_others_long_before_the_timeout() {
    let (coordinator, pki) = coordinator().await;
    for len in [1, 1_000_000] {
        // Each rank has its own runtime, so that a rank can end silently with everything it has.
        let runtime = |_| tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let mut runtimes: Vec<_> = (0..4).map(runtime).collect();
        let mut running: Vec<_> = (0..4)
            .map(|rank| {
                let config = config(&coordinator, &pki, rank, 4);
                let work =
                    async move { until_failure(Ring::join(config).await.unwrap(), len).await };
                runtimes[rank as usize].spawn(work)
            })
            .collect();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let killed = Instant::now();
        runtimes.remove(2).shutdown_background();
        drop(running.remove(2));
        for rank in running {
            let (error, at) = rank.await.unwrap();
            let expected = matches!(error, RingError::Lost { .. } | RingError::Ended { .. });
            assert!(expected, "{error:?}");
            assert!(at > killed, "it failed before: {error}");
            assert!(at - killed < LONG / 3, "it took {:?}", at - killed);
        }
        for runtime in runtimes {
            runtime.shutdown_background();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rank_that_does_not_take_part_fails_all_after_the_timeout() {
    let (coordinator, pki) = coordinator().await;
    let timeout = Duration::from_secs(3);
    let began = Instant::now();
    let results = all(rings(&coordinator, &pki, 3, timeout).await, move |mut ring| async move {
        if ring.rank() == 1 {
            tokio::time::sleep(timeout * 2).await;
            // The rank hears of the failure in its absence.
            return ring_error(ring.barrier().await);
        }
        let error = ring_error(ring.all_reduce(&mut [1f32; 100], Reduction::Sum).await);
        assert!(began.elapsed() < LONG, "it took {:?}", began.elapsed());
        error
    });
    let errors = results.await;
    assert!(errors.iter().any(|e| matches!(e, RingError::Stalled { .. })), "{errors:?}");
    assert!(matches!(errors[1], RingError::Ended { .. }), "{errors:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_drops_its_ring_or_a_call_or_leaves_early_is_named() {
    let (coordinator, pki) = coordinator().await;
    for (case, expected) in
        [(0, "was dropped before its end"), (1, "was dropped before its end"), (2, "has left")]
    {
        let results = all(rings(&coordinator, &pki, 3, LONG).await, move |mut ring| async move {
            let mut data = vec![0f32; 1000];
            match (ring.rank(), case) {
                (1, 0) => drop(ring),
                (1, 1) => {
                    // Rank 0 has not joined yet, so the call cannot end.
                    let reduced = ring.all_reduce(&mut data, Reduction::Sum);
                    tokio::time::timeout(Duration::from_millis(50), reduced).await.unwrap_err();
                    assert_eq!(ring_error(ring.barrier().await), RingError::Dropped);
                }
                (1, _) => ring.leave().await.unwrap(),
                _ => {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    return Some(ring_error(ring.all_reduce(&mut data, Reduction::Sum).await));
                }
            }
            None
        });
        let errors: Vec<RingError> = results.await.into_iter().flatten().collect();
        assert_eq!(errors.len(), 2);
        for error in errors {
            assert!(error.to_string().contains(expected), "case {case}: {error}");
            assert!(error.to_string().contains("rank 1"), "case {case}: {error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranks_that_do_not_fit_a_meeting_are_refused() {
    let (coordinator, pki) = coordinator().await;
    let first = config(&coordinator, &pki, 0, 3);
    let first = tokio::spawn(Ring::join(RingConfig { timeout: Duration::from_secs(4), ..first }));
    let group = || "g".to_owned();
    // Until the first rank is there, these wait for the others in vain.
    let missing = |missing| MeetingRefusal::Missing { group: group(), missing };
    let cases = [
        ((0, 3), MeetingRefusal::Taken { group: group(), rank: 0 }),
        ((1, 4), MeetingRefusal::Size { group: group(), given: 4, expected: 3 }),
        ((4, 4), MeetingRefusal::Rank { rank: 4, size: 4 }),
        ((0, 0), MeetingRefusal::Rank { rank: 0, size: 0 }),
    ];
    tokio::time::sleep(Duration::from_millis(500)).await;
    for ((rank, size), expected) in cases {
        let config = config(&coordinator, &pki, rank, size);
        assert_eq!(ring_error(Ring::join(config).await), RingError::Meeting(expected));
    }
    assert_eq!(ring_error(first.await.unwrap()), RingError::Meeting(missing(vec![1, 2])));
    // A client cannot be a rank, nor can a worker of another cluster.
    let client = pki.issue(Role::Client, "c").unwrap();
    let foreign = Pki::generate().unwrap().issue_worker("w0").unwrap();
    for identity in [client, foreign] {
        let config = RingConfig { identity, ..config(&coordinator, &pki, 0, 2) };
        let error = Ring::join(config).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
    }
}

/// Addresses that were free a moment ago.
fn addresses(count: usize) -> Vec<SocketAddr> {
    let sockets: Vec<_> = (0..count).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    sockets.iter().map(|socket| socket.local_addr().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn ranks_find_each_other_at_given_addresses_too() {
    let pki = Pki::generate().unwrap();
    let peers = addresses(3);
    let results = all(0..3u32, |rank| {
        let peers = RingPeers::Addresses(peers.clone());
        let config = RingConfig::new(identity(&pki, rank), "g", (rank, 3), peers);
        async move {
            // Early ranks wait.
            tokio::time::sleep(Duration::from_millis(u64::from(rank) * 300)).await;
            let mut ring = Ring::join(config).await.unwrap();
            let mut data = [ring.rank().cast_signed()];
            ring.all_reduce(&mut data, Reduction::Sum).await.unwrap();
            ring.leave().await.unwrap();
            data
        }
    });
    assert_eq!(results.await, [[3]; 3]);
    let config = RingConfig::new(identity(&pki, 0), "g", (0, 4), RingPeers::Addresses(peers));
    let error = ring_error(Ring::join(config).await).to_string();
    assert_eq!(error, "number of addresses 3, expected one of each of 4 ranks");
}

#[tokio::test(flavor = "multi_thread")]
async fn ranks_trust_workers_of_their_cluster_only() {
    let pki = Pki::generate().unwrap();
    let other = Pki::generate().unwrap();
    let own = |rank| identity(&pki, rank);
    // A rank chooses its own trust and claims; only the certificate that it shows counts.
    let foreign = other.issue_worker("w1").unwrap();
    let posing = Identity { ca_pem: own(1).ca_pem, ..foreign.clone() };
    let client = pki.issue(Role::Client, "w1").unwrap();
    for (what, intruder) in [("foreign", foreign), ("posing", posing), ("client", client)] {
        let peers = addresses(2);
        let identities = [own(0), intruder];
        let errors = all(identities.into_iter().zip(0..), |(identity, rank)| {
            let peers = RingPeers::Addresses(peers.clone());
            let timeout = Duration::from_secs(5);
            let config = RingConfig::new(identity, "g", (rank, 2), peers);
            async move { ring_error(Ring::join(RingConfig { timeout, ..config }).await) }
        });
        let errors = errors.await;
        let untrusted = |e: &RingError| matches!(e, RingError::Untrusted { .. });
        assert!(errors.iter().any(untrusted), "{what}: {errors:?}");
        // A rejected rank may see only a closed connection.
        let gone = |e: &RingError| matches!(e, RingError::Absent { .. } | RingError::Lost { .. });
        assert!(errors.iter().all(|e| untrusted(e) || gone(e)), "{what}: {errors:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rings_of_other_names_and_sizes_do_not_mix() {
    let pki = Pki::generate().unwrap();
    // Both ranks are neighbours of each other, but of different rings.
    let cases = [(("a", 2), ("b", 2)), (("a", 2), ("a", 3))];
    for (first, second) in cases {
        let peers = addresses(3);
        let errors = all([(0, first), (1, second)], |(rank, (group, size))| {
            let peers = RingPeers::Addresses(peers[..size].to_vec());
            let timeout = Duration::from_secs(5);
            let size = u32::try_from(size).unwrap();
            let config = RingConfig::new(identity(&pki, rank), group, (rank, size), peers);
            async move { ring_error(Ring::join(RingConfig { timeout, ..config }).await) }
        });
        let errors = errors.await;
        let told = |e: &RingError| matches!(e, RingError::Ended { .. });
        let absent = |e: &RingError| matches!(e, RingError::Absent { .. } | RingError::Lost { .. });
        assert!(errors.iter().any(told), "{errors:?}");
        assert!(errors.iter().all(|e| told(e) || absent(e)), "{errors:?}");
    }
}
