//! Room for samples that come in bursts.

use crate::source::ring::Sink;
use std::time::Duration;

/// Waits until a slot is free or `patience` is used up; returns whether it had to wait.
pub fn wait_for_room(sink: &mut Sink, patience: &mut Duration) -> bool {
    const NAP: Duration = Duration::from_micros(500);
    let mut waited = false;
    while !sink.has_room() && !patience.is_zero() {
        std::thread::sleep(NAP);
        *patience = patience.saturating_sub(NAP);
        waited = true;
    }
    waited
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ring::ring_of;

    #[test]
    fn a_burst_waits_for_slots_but_not_for_ever() {
        let (mut sink, mut drain) = ring_of(1, 0);
        // Long enough for a thread that gets no processor for a while.
        let mut patience = Duration::from_secs(10);
        assert!(!wait_for_room(&mut sink, &mut patience), "there is a slot");
        let slot = sink.take(1).unwrap();
        sink.put(slot);
        let freed = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            drain.sample(|_| ());
            drain
        });
        assert!(wait_for_room(&mut sink, &mut patience));
        assert!(sink.has_room() && !patience.is_zero());
        let _drain = freed.join();
        let slot = sink.take(2).unwrap();
        sink.put(slot);
        patience = Duration::from_millis(50);
        assert!(wait_for_room(&mut sink, &mut patience));
        assert!(!sink.has_room() && patience.is_zero());
    }
}
