//! The terminal of `top`: keys, the clock, and the snapshots of a second thread.

use super::snapshot::Snapshot;
use super::view::View;
use crate::cluster::Signals;
use crate::failure::{Failure, Result};
use crate::output;
use crate::rest::Target;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// How long keys are waited for before the rest is looked at.
const TICK: Duration = Duration::from_millis(200);
/// Between two attempts to find a coordinator again.
const AGAIN: Duration = Duration::from_secs(1);

/// The events besides keys.
enum Heard {
    Snapshot(Box<Snapshot>),
    Nothing(Failure),
    /// A signal asks the process to end.
    End,
}

/// Shows a cluster until a key or a signal ends it. The terminal is restored, also after a panic.
///
/// # Errors
/// When the terminal cannot be used; `interrupted` after a signal.
pub(super) fn watch(first: Snapshot, target: Target, interval: Duration) -> Result<()> {
    let (sender, heard) = channel();
    spawn("look", {
        let sender = sender.clone();
        move || {
            // The panic hook has restored the terminal, so drawing must stop.
            let looked = catch_unwind(AssertUnwindSafe(|| look(&target, interval, &sender)));
            if looked.is_err() {
                let _ = sender.send(Heard::End);
            }
        }
    })?;
    // Listen before the terminal is taken: an unhandled signal would leave it in its raw state.
    let (runtime, mut signals) = listen()?;
    spawn("signals", move || {
        runtime.block_on(signals.next());
        // The receiver is gone if the command has ended.
        let _ = sender.send(Heard::End);
    })?;
    let terminal = ratatui::try_init().map_err(unusable)?;
    let shown = show(terminal, View::new(first), &heard);
    ratatui::try_restore().map_err(unusable)?;
    shown
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    thread.map(drop).map_err(Failure::internal)
}

fn unusable(error: std::io::Error) -> Failure {
    Failure::new("terminal", format!("the terminal cannot be used: {error}"))
        .hint("radeon-cluster top | cat prints once what it would show")
}

/// Takes snapshots of the coordinator; after a failure it connects anew, since the coordinator may be at another
/// address.
fn look(target: &Target, interval: Duration, sender: &Sender<Heard>) {
    let mut client = None;
    loop {
        let taken = match client.take() {
            Some(known) => Ok(known),
            None => target.connect(),
        }
        .and_then(|known| Ok((Snapshot::take(&known)?, known)));
        let (heard, pause) = match taken {
            Ok((snapshot, known)) => {
                client = Some(known);
                (Heard::Snapshot(Box::new(snapshot)), interval)
            }
            Err(failure) => (Heard::Nothing(failure), AGAIN.min(interval)),
        };
        if sender.send(heard).is_err() {
            return;
        }
        std::thread::sleep(pause);
    }
}

/// Listens to signals; they are handled while the runtime runs.
fn listen() -> Result<(Runtime, Signals)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::internal)?;
    let signals = runtime.block_on(async { Signals::listen() })?;
    Ok((runtime, signals))
}

fn show(mut terminal: DefaultTerminal, mut view: View, heard: &Receiver<Heard>) -> Result<()> {
    let mut last = Instant::now();
    let mut is_old = true;
    loop {
        let age_s = last.elapsed().as_secs();
        // Even an unchanged frame costs bytes on a slow line.
        if is_old || age_s != view.age_s {
            (view.age_s, is_old) = (age_s, false);
            terminal.draw(|frame| view.draw(frame)).map_err(unusable)?;
        }
        if event::poll(TICK).map_err(unusable)? {
            is_old = true;
            let height = terminal.size().map_err(unusable)?.height;
            if let Event::Key(key) = event::read().map_err(unusable)?
                && key.kind != KeyEventKind::Release
                && is_end(&mut view, key, View::rows_shown(height))
            {
                return Ok(());
            }
        }
        for heard in heard.try_iter() {
            is_old = true;
            match heard {
                Heard::Snapshot(snapshot) => {
                    last = Instant::now();
                    view.hear(*snapshot);
                }
                Heard::Nothing(failure) => view.miss(output::plain(&failure.message).into_owned()),
                Heard::End => return Err(Failure::interrupted()),
            }
        }
    }
}

/// Handles a key; answers whether it ends the command.
fn is_end(view: &mut View, key: KeyEvent, page: isize) -> bool {
    match (key.code, key.modifiers) {
        (KeyCode::Char('q') | KeyCode::Esc, _) | (KeyCode::Char('c'), KeyModifiers::CONTROL) => {
            return true;
        }
        (KeyCode::Tab | KeyCode::Right, _) => view.turn(1),
        (KeyCode::BackTab | KeyCode::Left, _) => view.turn(-1),
        (KeyCode::Down, _) => view.move_by(1),
        (KeyCode::Up, _) => view.move_by(-1),
        (KeyCode::PageDown, _) => view.move_by(page),
        (KeyCode::PageUp, _) => view.move_by(-page),
        _ => {}
    }
    false
}
