//! The terminal: keys, and a thread that reads the store, so that keys work while the store does not
//! answer.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use cenote::Store;
use clap::ValueEnum;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::Look;
use super::frame::{Look as Style, Shown, draw};
use crate::args::SortArg;
use crate::failure::Done;

/// Seconds between updates, from least to most.
const PAUSES: [Duration; 8] = [
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_mins(1),
];
/// Response time to a key.
const KEYS: Duration = Duration::from_millis(50);

/// Shows the store until the user quits.
pub fn run(store: &Store, pause: Duration, sort: SortArg) -> Done {
    let mut terminal = ratatui::try_init()?;
    let result = std::thread::scope(|scope| {
        let (pauses, asked) = channel();
        let (found, looks) = channel();
        let store = store.clone();
        scope.spawn(move || watch(&store, pause, &asked, &found));
        let shown = Shown { look: None, error: None, paused: false, pause, sort, style: Style::of_terminal() };
        let result = interact(&mut terminal, shown, &looks, &pauses);
        drop(pauses); // ends the other thread
        result
    });
    ratatui::try_restore()?;
    Ok(result?)
}

type LookResult = cenote::Result<Look>;

/// Reads the store periodically until nobody listens.
fn watch(store: &Store, mut pause: Duration, asked: &Receiver<Duration>, found: &Sender<LookResult>) {
    let mut before = None;
    loop {
        let look = Look::at(store, before.take());
        before = look.as_ref().ok().map(|look| look.now.clone());
        if found.send(look).is_err() {
            return;
        }
        match asked.recv_timeout(pause) {
            Ok(other) => pause = other,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn interact(
    terminal: &mut ratatui::DefaultTerminal,
    mut shown: Shown,
    looks: &Receiver<LookResult>,
    pauses: &Sender<Duration>,
) -> io::Result<()> {
    let mut fresh = true;
    loop {
        loop {
            match looks.try_recv() {
                Ok(look) if !shown.paused => {
                    match look {
                        Ok(look) => (shown.look, shown.error) = (Some(look), None),
                        Err(error) => shown.error = Some(error.to_string()),
                    }
                    fresh = true;
                }
                Ok(_) => {}
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
        if fresh {
            terminal.draw(|frame| draw(frame, &shown))?;
            fresh = false;
        }
        if !event::poll(KEYS)? {
            continue;
        }
        fresh = true; // a key, or a new size
        if let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
            && !pressed(key, &mut shown, pauses)
        {
            return Ok(());
        }
    }
}

/// Handles a key; returns false to quit.
fn pressed(key: KeyEvent, shown: &mut Shown, pauses: &Sender<Duration>) -> bool {
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('p' | ' ') => shown.paused = !shown.paused,
        KeyCode::Char('s') => {
            let all = SortArg::value_variants();
            let at = all.iter().position(|sort| *sort == shown.sort).unwrap_or(0);
            shown.sort = all[(at + 1) % all.len()];
        }
        KeyCode::Char('+' | '=') => slower(shown, pauses, false),
        KeyCode::Char('-') => slower(shown, pauses, true),
        _ => {}
    }
    true
}

fn slower(shown: &mut Shown, pauses: &Sender<Duration>, slower: bool) {
    let next = if slower {
        PAUSES.iter().find(|pause| **pause > shown.pause)
    } else {
        PAUSES.iter().rev().find(|pause| **pause < shown.pause)
    };
    if let Some(next) = next {
        shown.pause = *next;
        let _ = pauses.send(*next);
    }
}
