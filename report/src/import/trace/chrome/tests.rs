//! Slices in all forms of the format.

use super::*;
use crate::import::trace::collected::SpanCollector;

fn spans(text: &str) -> SpanCollector {
    let mut sink = SpanCollector::default();
    read(&mut text.as_bytes(), &mut sink).unwrap();
    sink
}

#[test]
fn slices_are_found_in_any_order() {
    let whole = [
        r#"{"ph":"X","ts":10,"dur":90,"pid":1,"tid":2,"name":"outer"}"#,
        r#"{"ph":"X","ts":10,"dur":20.5,"pid":1,"tid":2,"name":"a"}"#,
        r#"{"ph":"X","ts":"40.25","dur":1e1,"pid":1,"tid":2,"name":"b","args":{"name":"}\"{"}}"#,
        r#"{"ph":"X","ts":100,"dur":0,"pid":1,"tid":2,"name":"next"}"#,
    ];
    let expected = [
        "1/2 a 1 20500",
        "1/2 b 1 10000",
        "1/2 outer 0 90000",
        "1/2 next 0 0",
    ];
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 2, 0, 3]] {
        let events: Vec<&str> = order.iter().map(|at| whole[*at]).collect();
        let sink = spans(&format!("[{}]", events.join(",\n")));
        assert_eq!(sink.lines(), expected);
        assert_eq!(sink.troubles, []);
        let starts: Vec<_> = sink
            .spans
            .iter()
            .map(|span| span.start_ns.unwrap())
            .collect();
        assert_eq!(starts, [10_000, 40_250, 10_000, 100_000]);
    }
}

#[test]
fn beginnings_and_ends_are_paired_by_thread() {
    let sink = spans(
        r#"{"traceEvents":[
{"ph":"M","pid":1,"tid":7,"name":"thread_name","args":{"name":"wörk\u0065r"}},
{"ph":"B","ts":1,"pid":1,"tid":7,"name":"load"},
{"ph":"B","ts":2,"pid":1,"tid":"io","name":"read"},
{"ph":"B","ts":3,"pid":1,"tid":7,"name":"lost"},
{"ph":"i","ts":3,"pid":1,"tid":7,"name":"instant"},
{"ph":"X","ts":4,"dur":1,"pid":1,"tid":7,"name":"whole"},
{"ph":"E","ts":9,"pid":1,"tid":7,"name":"load"},
{"ph":"E","ts":10,"pid":1,"tid":"io"},
{"ph":"E","ts":11,"pid":1,"tid":"io"},
{"ph":"X","ts":-1,"dur":1,"pid":1,"tid":7,"name":"early"},
{"ph":"X","ts":12,"dur":-1,"pid":1,"tid":7,"name":"backwards"},
{"ph":"b","ts":12,"id":1,"pid":1,"tid":7,"name":"async"},
{"ph":"B","ts":13,"pid":1,"tid":7,"name":"open"},
{"ph":"M","pid":1,"tid":"io","name":"thread_name","args":{"name":"disk"}}
],"displayTimeUnit":"ns"}"#,
    );
    let io = u32::MAX;
    let expected = [
        "1/7 whole 2 1000".to_owned(),
        "1/7 lost 1 ? cut".to_owned(),
        "1/7 load 0 8000".to_owned(),
        format!("1/{io} read 0 8000"),
        "1/7 open 0 ? cut".to_owned(),
    ];
    assert_eq!(sink.lines(), expected);
    assert_eq!(sink.tasks[0].2, "wörker".as_bytes());
    assert_eq!(sink.tasks[1].2, b"disk");
    let lines: Vec<u64> = sink.troubles.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [11, 12, 13, 5, 10]);
}

#[test]
fn what_overlaps_is_not_inside() {
    let sink = spans(
        r#"[{"ph":"X","ts":0,"dur":10,"pid":1,"tid":1,"name":"a"},
{"ph":"X","ts":5,"dur":10,"pid":1,"tid":1,"name":"b"},
{"ph":"X","ts":6,"dur":1,"pid":1,"tid":1,"name":"c"}"#,
    );
    assert_eq!(
        sink.lines(),
        ["1/1 c 1 1000", "1/1 a 0 10000", "1/1 b 0 10000"]
    );
    assert_eq!(
        sink.troubles,
        [(2, "a slice ends after the one around it".to_owned())]
    );
}

#[test]
fn an_event_beyond_the_window_is_told_as_late() {
    let event = |time: usize| {
        format!("{{\"ph\":\"X\",\"ts\":{time},\"dur\":1,\"pid\":1,\"tid\":1,\"name\":\"a\"}},\n")
    };
    let late = |events: usize| {
        let text: String = (10..10 + events).chain([1]).map(event).collect();
        spans(&format!("[{text}]")).troubles
    };
    assert_eq!(late(WINDOW), []);
    let what = "an event comes too late to be sorted among those of its thread".to_owned();
    assert_eq!(late(WINDOW + 2), [(WINDOW as u64 + 3, what)]);
}

/// Of each thread, the inner slices come before the outer one.
#[test]
fn threads_one_after_the_other_are_sorted_each_by_itself() {
    let slice = |thread: usize, time: usize, length: usize, name: &str| {
        format!(
            r#"{{"ph":"X","ts":{time},"dur":{length},"pid":1,"tid":{thread},"name":"{name}"}},"#
        )
    };
    let mut text = "[".to_owned();
    for time in 0..=WINDOW {
        text += &slice(1, 10 + time, 1, "a");
    }
    text += &slice(2, 2, 1, "inner");
    text += &slice(2, 5, 1, "inner");
    text += &slice(2, 1, 8, "outer");
    let sink = spans(&text);
    assert_eq!(sink.troubles, []);
    let second: Vec<String> = sink
        .lines()
        .into_iter()
        .filter(|line| line.starts_with("1/2 "))
        .collect();
    let expected = ["1/2 inner 1 1000", "1/2 inner 1 1000", "1/2 outer 0 8000"];
    assert_eq!(second, expected);
}

/// So many events of so many threads are more than are held back; those that are let go of are the earliest.
#[test]
fn events_of_all_threads_that_are_held_back_are_bounded() {
    let mut reader = Reader::default();
    let mut sink = SpanCollector::default();
    let threads = 1 + HELD_MAX / WINDOW;
    for time in 0..WINDOW {
        for thread in 0..threads {
            let text = format!(r#"{{"ph":"X","ts":{time},"dur":1,"tid":{thread},"name":"a"}}"#);
            reader.event(text.as_bytes(), 1, &mut sink).unwrap();
        }
    }
    let waiting = reader.tasks.iter().map(|task| task.waiting.len());
    assert_eq!(waiting.sum::<usize>(), reader.held);
    assert!((HELD_MAX / 2..=HELD_MAX).contains(&reader.held));
    reader.take_rest(&mut sink).unwrap();
    for task in &mut reader.tasks {
        task.slices.finish(&mut sink).unwrap();
    }
    assert_eq!(sink.spans.len(), WINDOW * threads);
    assert_eq!(sink.troubles, []);
}
