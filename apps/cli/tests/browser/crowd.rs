//! A large cluster on the page. Fifty processes would measure the machine, so the page gets fifty workers in place of
//! each, 100,000 tasks, and events by the hundred; the rest is real.

use crate::driver::Browser;
use serde_json::json;

/// Multiplies the server's answers, with figures that change on each request.
const MULTIPLY: &str = r#"
const ask = window.fetch;
const wild = (most) => Math.floor(Math.random() * most);
const many = (count, make) => Array.from({ length: count }, (_, at) => make(at));
const change = {
  workers: (all) => many(50, (at) => ({ ...all[0], id: `worker-${at}`, queued: wild(9), completed: wild(1e6), devices: all[0].devices.map((it) => ({ ...it, running: wild(4), utilisation: Math.random(), vram_used_bytes: wild(8e9), vram_total_bytes: 8e9 })) })),
  tasks: (all, url) => many(50, (at) => ({ ...all[0], task_id: `1-${(100000 - at).toString(16)}`, state: ['queued', 'running', 'succeeded'][wild(3)], attempts: wild(3), queued_ms: Math.random() * 1e4 })),
  stats: (it) => ({ ...it, tasks: { ...it.tasks, queued: 100000 - wild(1000), running: 200 }, queued_by_model: Object.fromEntries(many(100, (at) => [`model-${at}/1`, wild(2000)])) }),
};
const pour = () => new ReadableStream({
  start(stream) {
    const text = new TextEncoder();
    const worker = () => `data: ${JSON.stringify({ at_ms: Date.now(), event: 'task_succeeded', worker: `worker-${wild(50)}`, model: 'digits/1' })}\n\n`;
    setInterval(() => stream.enqueue(text.encode(many(20, worker).join(''))), 100);
  },
});
window.fetch = async (url, sent) => {
  const name = new URL(url).pathname.split('/api/v1/cluster/')[1];
  if (name === 'events') return new Response(pour());
  const answer = await ask(url, sent);
  if (!change[name] || !answer.ok) return answer;
  return new Response(JSON.stringify(change[name](await answer.json(), url)), { headers: { link: '<tasks?after=1-1>; rel="next"' } });
};
"#;

/// The times between frames over four seconds, in milliseconds, the shortest first.
const FRAMES: &str = r"
const done = arguments[0];
const times = [];
let last = performance.now();
const until = last + 4000;
const step = (now) => {
  times.push(now - last);
  last = now;
  if (now < until) requestAnimationFrame(step);
  else done(times.sort((a, b) => a - b));
};
requestAnimationFrame(step);
";

/// The share of frames that may take longer, because the machine is shared.
const LATE: f64 = 0.05;
const FRAME_MS: f64 = 50.0;

#[tokio::test(flavor = "multi_thread")]
async fn fifty_workers_and_many_tasks_stay_fluid() {
    let Some(browser) = Browser::at("Overview", "1").await else { return };
    let image = browser.cluster.world.path("image.npy");
    std::fs::write(&image, crate::pages::digits()).expect("the folder is ours");
    let input = format!("image={}", image.display());
    browser.cluster.run(&["submit", "--model", "digits", "--input", &input, "--wait"]).json();
    browser.script(MULTIPLY).await;
    for (page, part) in [("Machines", "worker-9"), ("Tasks", "1-186a0"), ("Overview", "model-99/1")]
    {
        browser.open(page).await;
        browser.shows("main", part).await;
        let mut seen = Vec::new();
        // Repeated, because other processes of the machine may disturb one measurement.
        for _ in 0..5 {
            let times = browser.client.execute_async(FRAMES, Vec::new()).await.expect("it ends");
            let times: Vec<f64> = serde_json::from_value(times).expect("times");
            let late = times.iter().filter(|ms| **ms > FRAME_MS).count() as f64;
            seen.push((late / times.len() as f64, times.last().copied()));
            if late <= LATE * times.len() as f64 {
                break;
            }
        }
        println!("{page}: {seen:?}");
        assert!(
            seen.last().is_some_and(|(late, _)| *late <= LATE),
            "{page} is not fluid: {seen:?}"
        );
    }
    browser.open("Machines").await;
    browser.shows("main", "worker-9").await;
    let cards = browser.script("return document.querySelectorAll('.card').length").await;
    assert_eq!(cards, json!(50));
    let elements = browser.script("return document.querySelectorAll('*').length").await;
    assert!(elements.as_u64() < Some(5_000), "elements on the page: {elements}");
    browser.is_quiet().await;
}
