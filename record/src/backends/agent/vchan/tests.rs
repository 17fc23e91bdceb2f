//! A sound server, a lying one, and our end, over pages of this process.

use super::rings::{Moved, RingError, Rings};
use super::*;
use crate::sys::xen::shared_pages::PAGE_BYTES;
use std::sync::Arc;

/// Pages that stand in for a guest's: the first one of a server, and as many for each ring as its order requires.
struct FakeServer {
    first: Arc<SharedPages>,
    rings: Vec<Arc<SharedPages>>,
    /// References that were mapped.
    asked: Vec<Vec<u32>>,
}

/// Offsets of the positions, as in section 7.2 of the protocol.
const LEFT: [usize; 2] = [0, 4];
const RIGHT: [usize; 2] = [8, 12];

impl FakeServer {
    fn new(left_order: u16, right_order: u16) -> Self {
        let first = Arc::new(SharedPages::of_our_own(1));
        first.copy_in(16, &left_order.to_le_bytes());
        first.copy_in(18, &right_order.to_le_bytes());
        first.copy_in(20, &[2, 1, 1, 0]); // not yet there, there; wants a notification of the client's writes
        for reference in 0..600u32 {
            first.copy_in(
                24 + 4 * reference as usize,
                &(1000 + reference).to_le_bytes(),
            );
        }
        FakeServer {
            first,
            rings: Vec::new(),
            asked: Vec::new(),
        }
    }

    fn client(&mut self) -> Result<Rings<Arc<SharedPages>>, RingError> {
        let FakeServer {
            first,
            rings,
            asked,
        } = self;
        Rings::open(first.clone(), |references| {
            let pages = Arc::new(SharedPages::of_our_own(references.len()));
            rings.push(pages.clone());
            asked.push(references.to_vec());
            Ok(pages)
        })
    }

    fn refused(left_order: u16, right_order: u16) -> String {
        match FakeServer::new(left_order, right_order).client() {
            Err(RingError::Nonsense(what)) => what,
            other => panic!("{other:?}"),
        }
    }

    /// Writes into the ring for the client, which has `size` bytes, without checking how full it is.
    fn write(&self, pages: &SharedPages, start: usize, size: u32, bytes: &[u8]) {
        let mut at = self.first.word(RIGHT[1]);
        for byte in bytes {
            pages.copy_in(start + (at & (size - 1)) as usize, &[*byte]);
            at = at.wrapping_add(1);
        }
        self.first.set_word(RIGHT[1], at);
    }
}

fn moved(bytes: usize, notify: bool) -> Moved {
    Moved { bytes, notify }
}

#[test]
fn bytes_go_both_ways_around_the_ends_of_rings_of_each_kind() {
    for (left_order, right_order) in [(10, 11), (11, 10), (10, 12), (12, 11), (13, 14)] {
        let mut server = FakeServer::new(left_order, right_order);
        // Positions wrap in the middle.
        for (ring, order) in [(LEFT, left_order), (RIGHT, right_order)] {
            let start = u32::MAX - (1 << order) / 2;
            ring.into_iter()
                .for_each(|at| server.first.set_word(at, start));
        }
        let mut client = server.client().unwrap();
        assert!(client.is_served());
        client.enter().unwrap();
        assert_eq!(server.first.byte(20), 1);
        let mut rings = server.rings.iter().cloned();
        let mut place = |order: u16| match order {
            12.. => (rings.next().unwrap(), 0),
            order => (server.first.clone(), 1 << order),
        };
        let ((left, left_start), (right, right_start)) = (place(left_order), place(right_order));
        let all: Vec<u8> = (0..50_000u32).map(|n| (n % 251) as u8).collect();
        let (mut sent, mut came, mut taken, mut given) = (0, Vec::new(), Vec::new(), 0);
        while sent < all.len() || given < all.len() {
            // Writes as much as there is room for, until there is none.
            let count = client
                .send(&all[sent..all.len().min(sent + 700)])
                .unwrap()
                .bytes;
            sent += count;
            let (size, [consumed, produced]) = (1u32 << left_order, LEFT);
            let (from, to) = (server.first.word(consumed), server.first.word(produced));
            assert!(to.wrapping_sub(from) <= size);
            for at in 0..to.wrapping_sub(from) {
                let mut byte = [0];
                let place = from.wrapping_add(at) & (size - 1);
                left.copy_out(left_start + place as usize, &mut byte);
                came.push(byte[0]);
            }
            server.first.set_word(consumed, to);
            let end = all.len().min(given + 333);
            server.write(&right, right_start, 1 << right_order, &all[given..end]);
            given = end;
            let mut into = [0; 1000];
            let count = client.receive(&mut into).unwrap().bytes;
            taken.extend_from_slice(&into[..count]);
        }
        assert!(came == all && taken == all, "{left_order}, {right_order}");
    }
}

#[test]
fn references_are_those_of_left_and_then_right() {
    let mut server = FakeServer::new(13, 14);
    server.client().unwrap();
    assert_eq!(
        server.asked,
        [vec![1000, 1001], vec![1002, 1003, 1004, 1005]]
    );
    let mut server = FakeServer::new(10, 12);
    server.client().unwrap();
    assert_eq!(server.asked, [vec![1000]]);
}

#[test]
fn each_side_is_told_of_what_it_asked_for_and_once() {
    const SERVER: usize = 22;
    const CLIENT: usize = 23;
    let mut server = FakeServer::new(10, 11);
    let mut client = server.client().unwrap();
    client.enter().unwrap();
    assert_eq!(
        client.send(b"one"),
        Ok(moved(3, true)),
        "a server is told of the first bytes"
    );
    assert_eq!(
        client.send(b"two"),
        Ok(moved(3, false)),
        "it has not asked again"
    );
    server.first.add_bits(SERVER, 1);
    assert_eq!(client.send(b"three"), Ok(moved(5, true)));
    assert!(
        server.first.take_bits(CLIENT, 1),
        "the client asks to be told"
    );
    assert_eq!(client.has_some(), Ok(false));
    assert!(
        server.first.take_bits(CLIENT, 1),
        "and again when it has seen nothing"
    );
    server.write(&server.first, 2048, 2048, b"four");
    assert_eq!(client.has_some(), Ok(true));
    let mut into = [0; 9];
    assert_eq!(client.receive(&mut into), Ok(moved(4, false)));
    server.write(&server.first, 2048, 2048, b"five");
    server.first.add_bits(SERVER, 2);
    assert_eq!(
        client.receive(&mut into),
        Ok(moved(4, true)),
        "a server that waits for room"
    );
    assert_eq!(client.receive(&mut into), Ok(moved(0, false)));
}

#[test]
fn a_client_passes_over_what_was_for_another() {
    let mut server = FakeServer::new(10, 11);
    server.write(&server.first, 2048, 2048, b"for another");
    let mut client = server.client().unwrap();
    client.enter().unwrap();
    assert_eq!(client.receive(&mut [0; 99]), Ok(moved(0, false)));
    assert_eq!(server.first.word(RIGHT[0]), 11);
}

#[test]
fn a_ring_that_is_full_takes_nothing() {
    let mut server = FakeServer::new(10, 11);
    let mut client = server.client().unwrap();
    assert_eq!(client.send(&[7; 2000]), Ok(moved(1024, true)));
    assert_eq!(client.send(&[7; 2000]), Ok(moved(0, false)));
}

#[test]
fn orders_that_cannot_be_are_refused() {
    for (left, right) in [(9, 12), (12, 0), (21, 12), (12, u16::MAX)] {
        assert!(FakeServer::refused(left, right).starts_with("rings of orders"));
    }
    for order in [10, 11] {
        assert!(FakeServer::refused(order, order).starts_with("two rings in one place"));
    }
    // 250 references end before a ring at 1024, 256 of the next order don't; at 2048 they do.
    assert!(FakeServer::refused(10, 20).starts_with("256 pages"));
    assert!(FakeServer::new(10, 19).client().is_ok());
    assert!(FakeServer::new(20, 11).client().is_ok());
    assert!(FakeServer::new(20, 20).client().is_ok());
}

#[test]
fn positions_that_cannot_be_are_refused_and_nothing_beyond_a_ring_is_read() {
    let mut into = vec![0; 2 * PAGE_BYTES];
    for wild in [2049, 1 << 31, u32::MAX] {
        let mut server = FakeServer::new(10, 11);
        let mut client = server.client().unwrap();
        client.enter().unwrap();
        server.first.set_word(RIGHT[1], wild);
        let lie = client.receive(&mut into).unwrap_err();
        assert_eq!(
            lie,
            LineError::TooFull {
                waiting: wild,
                ring: 2048
            }
        );
        assert!(client.has_some().is_err());
        assert!(server.client().unwrap().enter().is_err());
    }
    let mut server = FakeServer::new(10, 11);
    let mut client = server.client().unwrap();
    client.send(b"12345").unwrap();
    for wild in [6, 1 << 31, 5u32.wrapping_sub(1025)] {
        server.first.set_word(LEFT[0], wild);
        let lie = client.send(b"x").unwrap_err();
        assert!(matches!(lie, LineError::ReadTooMuch { .. }), "{lie}");
    }
}

#[test]
fn what_stands_for_our_own_positions_is_never_read_again() {
    let mut server = FakeServer::new(10, 11);
    let mut client = server.client().unwrap();
    client.enter().unwrap();
    client.send(b"12345").unwrap();
    for at in [LEFT[1], RIGHT[0]] {
        server.first.set_word(at, 0xdead_beef);
    }
    // Orders and references, too, must stay those of the start.
    server.first.copy_in(16, &[0xff; 4]);
    assert_eq!(client.send(b"678"), Ok(moved(3, false)));
    assert_eq!(server.first.word(LEFT[1]), 8);
    server.write(&server.first, 2048, 2048, b"abc");
    assert_eq!(client.receive(&mut [0; 9]), Ok(moved(3, false)));
    assert_eq!(server.first.word(RIGHT[0]), 3);
}

#[test]
fn addresses_are_a_domain_and_a_path() {
    let address = Address::parse("7/data/uniprof").unwrap();
    assert_eq!(
        address.key("ring-ref"),
        "/local/domain/7/data/uniprof/ring-ref"
    );
    assert_eq!(address.to_string(), "vchan:7/data/uniprof");
    let long = format!("7/{}", "x".repeat(257));
    for wrong in [
        "",
        "7",
        "7/",
        "/data",
        "x/data",
        "32752/data",
        "-1/data",
        "7/a b",
        "7/a\0",
        &long,
    ] {
        let error = Address::parse(wrong).unwrap_err().to_string();
        assert!(
            error.contains("is no address of a vchan"),
            "{wrong}: {error}"
        );
    }
    assert!(Address::parse(&long[..258]).is_ok());
}

#[test]
fn whatever_a_server_writes_into_its_pages_our_end_goes_on_or_refuses() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut opened, mut moved, mut refused) = (0, 0, 0);
    for _ in 0..3000 {
        let mut server = FakeServer::new(random.u16(9..15), random.u16(9..15));
        let Ok(mut client) = server.client() else {
            refused += 1;
            continue;
        };
        opened += 1;
        let mut into = vec![0; random.usize(1..9000)];
        for _ in 0..20 {
            // Mostly valid positions, so that rings fill and run empty.
            let at = random.choice([LEFT, RIGHT].concat()).unwrap();
            match random.u8(..4) {
                0 => server.first.set_word(at, random.u32(..)),
                1 => server.first.copy_in(random.usize(..64), &[random.u8(..)]),
                _ => {
                    let on = server.first.word(at).wrapping_add(random.u32(..2048));
                    server.first.set_word(at, on);
                }
            }
            let result = match random.u8(..4) {
                0 => client.enter().map(|()| 0),
                1 => client.receive(&mut into).map(|moved| moved.bytes),
                2 => client.send(&into).map(|moved| moved.bytes),
                _ => client.has_some().map(usize::from),
            };
            match result {
                Ok(count) => {
                    assert!(count <= into.len());
                    moved += count;
                }
                Err(why) => {
                    assert!(why.to_string().starts_with("it says that"), "{why}");
                    refused += 1;
                }
            }
        }
    }
    assert!(
        opened > 500 && moved > 100_000 && refused > 500,
        "{opened}, {moved}, {refused}"
    );
}
