//! A sleep that ends early: when another thread rings, or when the kernel has written much into a ring buffer.
//!
//! A thread that looks often whether something came wakes for nothing, and each time costs more than what it finds.

use super::perf::Event;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// Wakes one thread.
#[derive(Debug)]
pub struct Bell(EventFd);

impl Bell {
    /// One that was not rung yet.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn new() -> Result<Self, Errno> {
        EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map(Bell)
    }

    /// Ends the present sleep, or the next one.
    pub fn ring(&self) {
        // It fails only where it has been rung 2^64 times.
        let _ = self.0.write(1);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The thread that the bell wakes.
#[derive(Debug)]
pub struct Sleeper {
    /// The bell.
    pub bell: Arc<Bell>,
    /// Events whose ring buffers may fill meanwhile.
    pub events: Vec<Arc<Event>>,
}

impl Sleeper {
    /// Sleeps for at most `longest`; returns whether a ring buffer has been filled to its watermark.
    pub fn sleep(&mut self, longest: Duration) -> bool {
        let descriptors = self.events.iter().map(|event| event.as_fd());
        let descriptors = std::iter::once(self.bell.as_fd()).chain(descriptors);
        let polled = descriptors.map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN));
        let mut polled: Vec<_> = polled.collect();
        // A signal that ends it is for another thread.
        let _ = ppoll(&mut polled, Some(TimeSpec::from_duration(longest)), None);
        let found = polled
            .iter()
            .map(|one| one.revents().unwrap_or(PollFlags::empty()));
        let found: Vec<_> = found.collect();
        let (bell, events) = found.split_at(1);
        if bell.contains(&PollFlags::POLLIN) {
            let _ = self.bell.0.read();
        }
        // The event of a thread that has ended would end each sleep at once.
        let ends = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
        let mut ended = events.iter().map(|flags| flags.intersects(ends));
        self.events.retain(|_| ended.next() == Some(false));
        events.iter().any(|flags| flags.contains(PollFlags::POLLIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(100);

    #[test]
    fn a_ring_ends_one_sleep_whether_it_has_begun_or_not() {
        let bell = Arc::new(Bell::new().unwrap());
        let mut sleeper = Sleeper {
            bell: Arc::clone(&bell),
            events: Vec::new(),
        };
        bell.ring();
        bell.ring();
        assert!(!sleeper.sleep(LONG));
        let began = Instant::now();
        sleeper.sleep(Duration::from_millis(20));
        assert!(
            began.elapsed() >= Duration::from_millis(20),
            "rung once more"
        );
        let ringer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            bell.ring();
        });
        assert!(!sleeper.sleep(LONG));
        ringer.join().unwrap();
        assert!(began.elapsed() < LONG);
    }

    #[test]
    fn a_ring_buffer_that_is_filled_to_its_watermark_ends_a_sleep() {
        let tid = nix::unistd::gettid().as_raw();
        let Ok(event) = Event::open_switches(tid, 1 << 10) else {
            eprintln!("skipped: no perf events");
            return;
        };
        let _ring = super::super::ring_buffer::RingBuffer::map(&event, 1).unwrap();
        let mut sleeper = Sleeper {
            bell: Arc::new(Bell::new().unwrap()),
            events: vec![Arc::new(event)],
        };
        let moment = Duration::from_micros(50);
        // Each sleep is two records of 16 bytes.
        let is_filled = (0..100).any(|_| sleeper.sleep(moment));
        assert!(is_filled);
        // Nothing reads it, and what was told is told once.
        assert!(!sleeper.sleep(moment));
    }

    #[test]
    fn the_event_of_a_thread_that_has_ended_ends_no_sleep() {
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let (id, ids) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            id.send(nix::unistd::gettid().as_raw()).unwrap();
            told.recv()
        });
        let Ok(event) = Event::open_switches(ids.recv().unwrap(), 1 << 12) else {
            eprintln!("skipped: no perf events");
            return;
        };
        let ring = super::super::ring_buffer::RingBuffer::map(&event, 1).unwrap();
        let mut sleeper = Sleeper {
            bell: Arc::new(Bell::new().unwrap()),
            events: vec![Arc::new(event)],
        };
        drop(tell);
        assert!(thread.join().unwrap().is_err());
        while !sleeper.events.is_empty() {
            sleeper.sleep(Duration::from_millis(20));
        }
        drop(ring);
        let began = Instant::now();
        assert!(!sleeper.sleep(Duration::from_millis(20)));
        assert!(began.elapsed() >= Duration::from_millis(20));
    }
}
