//! Waiting for the end: SIGINT, SIGTERM, or whatever else shall end the lab.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Tells when it is time to end.
pub struct Interrupted {
    sender: Sender<()>,
    receiver: Receiver<()>,
}

/// Watches for SIGINT and SIGTERM from now on.
///
/// # Errors
/// When the signal handlers cannot be installed.
pub fn watch() -> Result<Interrupted> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let (sender, receiver) = channel();
    let mut interrupted = Interrupted { sender, receiver };
    interrupted.also_when(move || {
        signals.forever().next();
    });
    Ok(interrupted)
}

impl Interrupted {
    /// Ends the wait as well when `end` returns.
    pub fn also_when(&mut self, end: impl FnOnce() + Send + 'static) {
        let sender = self.sender.clone();
        thread::spawn(move || {
            end();
            let _ = sender.send(());
        });
    }

    /// Returns when it is time to end.
    pub fn wait(&self) {
        let _ = self.receiver.recv();
    }
}
