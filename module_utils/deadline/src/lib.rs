//! One deadline for a whole run, and polling inside it.
//!
//! A run gets one [`Deadline`]; every wait of the run ends with it. A wait begins with short pauses
//! (100 ms) that back off to 2 s, so a fast answer is seen fast and a slow system is not pestered.
//! The deadline also carries the interrupt flag that SIGINT and SIGTERM raise: a poll stops at once.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{panic, thread};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How quickly a raised interrupt flag is seen during a pause.
const INTERRUPT_TICK: Duration = Duration::from_millis(50);

/// The moment a run must be over, with the flag that ends it earlier.
#[derive(Clone, Debug)]
pub struct Deadline {
    end: Instant,
    budget: Duration,
    interrupted: Arc<AtomicBool>,
}

/// Why a wait ended without what it waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// The budget, in seconds as the user gave it, is used up.
    TimedOut { budget: Duration },
    /// SIGINT or SIGTERM arrived.
    Interrupted,
}

impl fmt::Display for Expired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut { budget } => write!(f, "not done within {} s", budget.as_secs_f64()),
            Self::Interrupted => f.write_str("interrupted by a signal"),
        }
    }
}

impl std::error::Error for Expired {}

impl Deadline {
    /// A deadline `budget` from now.
    #[must_use]
    pub fn after(budget: Duration) -> Self {
        Self { end: Instant::now() + budget, budget, interrupted: Arc::default() }
    }

    /// The flag to raise when the run shall stop early.
    #[must_use]
    pub fn interrupt_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.interrupted)
    }

    /// An earlier deadline inside this one (never a later one); the interrupt flag is shared.
    #[must_use]
    pub fn at_most(&self, budget: Duration) -> Self {
        Self {
            // A budget that no clock can hold ends with the outer deadline.
            end: Instant::now().checked_add(budget).map_or(self.end, |end| end.min(self.end)),
            budget: budget.min(self.budget),
            interrupted: Arc::clone(&self.interrupted),
        }
    }

    /// What is left; zero when over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// # Errors
    /// [`Expired`] when the time is used up or the run was interrupted.
    pub fn check(&self) -> Result<(), Expired> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Expired::Interrupted);
        }
        if self.remaining().is_zero() {
            return Err(Expired::TimedOut { budget: self.budget });
        }
        Ok(())
    }

    /// Sleeps `pause`, but not past the deadline and not past an interrupt.
    ///
    /// # Errors
    /// [`Expired`] when the deadline or an interrupt came first.
    pub fn pause(&self, pause: Duration) -> Result<(), Expired> {
        let begun = Instant::now();
        loop {
            self.check()?;
            let left = pause.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(self.remaining()).min(INTERRUPT_TICK));
        }
    }

    /// Asks `probe` until it gives a value, with pauses from 100 ms backing off to 2 s.
    ///
    /// `probe` is always asked at least once, and a last time after the deadline's final pause.
    ///
    /// # Errors
    /// The probe's own error at once, or [`Expired`] (converted) when the time is used up.
    pub fn poll<T, E: From<Expired>>(&self, mut probe: impl FnMut() -> Result<Option<T>, E>) -> Result<T, E> {
        let mut pause = FIRST_PAUSE;
        loop {
            if let Some(value) = probe()? {
                return Ok(value);
            }
            self.pause(pause)?;
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits for what blocks in the kernel, a file lock, and is woken the moment it is done: of many that
    /// poll for a lock, most would sleep while it is free.
    ///
    /// What is given up goes on in a thread of its own until it is done; its value is then dropped.
    ///
    /// # Errors
    /// [`Expired`] when the deadline or an interrupt came first.
    pub fn block_on<T: Send + 'static>(
        &self,
        blocks: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Expired> {
        let (done, waiting) = mpsc::channel();
        let thread = thread::spawn(move || drop(done.send(blocks())));
        loop {
            match waiting.recv_timeout(self.remaining().min(INTERRUPT_TICK)) {
                Ok(value) => return Ok(value),
                Err(RecvTimeoutError::Timeout) => self.check()?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        match thread.join() {
            Err(panic) => panic::resume_unwind(panic),
            Ok(()) => unreachable!("it sent its value"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_returns_the_first_value() {
        let mut asked = 0;
        let value: Result<i32, Expired> = Deadline::after(Duration::from_secs(5)).poll(|| {
            asked += 1;
            Ok((asked == 3).then_some(7))
        });
        assert_eq!(value, Ok(7));
        assert_eq!(asked, 3);
    }

    #[test]
    fn a_used_up_budget_is_named() {
        let deadline = Deadline::after(Duration::from_millis(150));
        let result: Result<(), Expired> = deadline.poll(|| Ok(None));
        assert_eq!(result, Err(Expired::TimedOut { budget: Duration::from_millis(150) }));
        assert_eq!(result.unwrap_err().to_string(), "not done within 0.15 s");
    }

    #[test]
    fn the_probe_error_ends_the_poll_at_once() {
        #[derive(Debug, PartialEq)]
        struct Broken;
        impl From<Expired> for Broken {
            fn from(_: Expired) -> Self {
                panic!("the deadline was not reached")
            }
        }
        let result: Result<(), Broken> = Deadline::after(Duration::from_secs(60)).poll(|| Err(Broken));
        assert_eq!(result, Err(Broken));
    }

    #[test]
    fn an_interrupt_ends_a_pause_long_before_it_is_over() {
        let deadline = Deadline::after(Duration::from_secs(60));
        let flag = deadline.interrupt_flag();
        let inner = deadline.at_most(Duration::from_secs(30));
        let raiser = thread::spawn(move || flag.store(true, Ordering::Relaxed));
        assert_eq!(inner.pause(Duration::from_secs(20)), Err(Expired::Interrupted));
        raiser.join().unwrap();
    }

    #[test]
    fn a_nested_deadline_is_never_later() {
        let outer = Deadline::after(Duration::from_millis(10));
        for budget in [Duration::from_secs(60), Duration::MAX] {
            assert!(outer.at_most(budget).remaining() <= Duration::from_millis(10));
        }
        assert!(matches!(outer.pause(Duration::MAX), Err(Expired::TimedOut { .. })));
    }

    #[test]
    fn what_blocks_is_waited_for_until_it_is_done_or_the_deadline() {
        let deadline = Deadline::after(Duration::from_secs(60));
        assert_eq!(deadline.block_on(|| 7), Ok(7));
        let (_never, blocks) = mpsc::channel::<()>();
        let budget = Duration::from_millis(60);
        let given_up = Deadline::after(budget).block_on(move || blocks.recv().ok());
        assert_eq!(given_up, Err(Expired::TimedOut { budget }));
    }

    #[test]
    #[should_panic(expected = "boom")]
    fn a_panic_of_what_blocks_is_the_callers() {
        let _ = Deadline::after(Duration::from_secs(60)).block_on(|| panic!("boom"));
    }
}
