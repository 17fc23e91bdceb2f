//! The output of trace-cmd and tracefs, with all their columns.

use super::*;
use crate::import::trace::collected::SpanCollector;

fn spans(text: &str) -> SpanCollector {
    let mut sink = SpanCollector::default();
    read(&mut text.as_bytes(), &mut sink).unwrap();
    sink
}

#[test]
fn trace_cmds_entries_and_exits_become_calls() {
    let sink = spans(
            "\
cpus=2
CPU:1 [18047 EVENTS DROPPED]
              ls-95    [001]     7.675210: funcgraph_entry:      ! 406.829 us |  mutex_unlock();
              ls-95    [001]     7.675639: funcgraph_entry:                   |  __f_unlock_pos() {
              ls-95    [001]     7.675644: funcgraph_entry:        0.984 us   |    mutex_unlock();
          <idle>-0     [000]     7.675645: funcgraph_entry:                   |  idle() {
          <idle>-0     [001]     7.675645: funcgraph_entry:        1.000 us   |  idle();
              ls-95    [000]     7.675646: funcgraph_exit:         7.288 us   |  } /* __f_unlock_pos */
              ls-95    [000] d..1.     7.675656: funcgraph_exit:  + 22.664 us  |  } /* not_begun = 0 */
              ls-95    [001]    47.332680: sys_exit:             NR 3 = 0
              ls-95    [001]     7.675657: funcgraph_entry:      -1.0 us |  func [mod](a=1, b=2);
",
        );
    let expected = [
        "0/95 mutex_unlock 0 406829",
        "0/95 mutex_unlock 1 984",
        "1/1 idle 0 1000",
        "0/95 __f_unlock_pos 0 7288",
        "0/95 not_begun 0 22664 cut",
        "0/95 func [mod] 0 ?",
        "1/0 idle 0 ? cut",
    ];
    assert_eq!(sink.lines(), expected);
    let starts: Vec<_> = sink
        .spans
        .iter()
        .map(|span| span.start_ns.unwrap())
        .collect();
    assert_eq!(starts[3], 7_675_639_000);
    assert_eq!(starts[4], 7_675_656_000 - 22_664);
    let troubles = [
        (2, "the tracer lost events".to_owned()),
        (
            11,
            "a duration that is no number of microseconds".to_owned(),
        ),
    ];
    assert_eq!(sink.troubles, troubles);
}

#[test]
fn columns_of_tracefs_are_found() {
    let expected = ["/0 read_hpet 1 2310", "/0 ktime_get 0 4263"];
    let texts = [
        " 0)               |  ktime_get() {\n 0)   2.310 us    |    read_hpet();\n 0)   4.263 us    |  }\n",
        "   29.336348 |   0)    <idle>-0    |               |  ktime_get() {
   29.336348 |   0)    <idle>-0    |   2.310 us    |    read_hpet();
   29.336350 |   0)    <idle>-0    |   4.263 us    |  } /* ktime_get */",
        "   <idle>-0    |               |  ktime_get() {
   <idle>-0    |   2.310 us    |    read_hpet(); /* = 0x12 */
   <idle>-0    |   4.263 us    |  }",
    ];
    for (text, space) in texts.into_iter().zip([2, 1, 1]) {
        let sink = spans(text);
        let expected: Vec<String> = expected
            .iter()
            .map(|line| format!("{space}{line}"))
            .collect();
        assert_eq!(sink.lines(), expected, "{text}");
        assert_eq!(sink.troubles, []);
        let start = sink.spans[1].start_ns;
        assert_eq!(start.is_some(), text.contains("29.336348"), "{text}");
    }
}

#[test]
fn a_return_value_is_no_part_of_a_name() {
    for value in ["", " = 0x0", " (ret=0x0)", " ret=0x0"] {
        let sink = spans(&format!(
            " 0)               |  migrate() {{\n 0)   2.310 us    |    find(); /*{value} */\n \
             0)   4.263 us    |  }} /* migrate{value} */\n"
        ));
        assert_eq!(
            sink.lines(),
            ["2/0 find 1 2310", "2/0 migrate 0 4263"],
            "{value}"
        );
        assert_eq!(sink.troubles, []);
    }
}

#[test]
fn a_cpu_that_changes_threads_has_calls_of_both() {
    let sink = spans(
        " 0)               |  schedule() {
 ------------------------------------------
 0)    bash-1234   =>    ls-567
 ------------------------------------------

 0)               |  open() {
 0)   ==========> |
 0)   1.000 us    |    irq();
 0)   <========== |
 0)   2.000 us    |  }
 ------------------------------------------
 0)    ls-567      =>   bash-1234
 ------------------------------------------

 0)   3.000 us    |  close();
",
    );
    let expected = [
        "0/567 irq 1 1000",
        "0/567 open 0 2000",
        "0/1234 close 0 3000",
        "2/0 schedule 0 ? cut",
    ];
    assert_eq!(sink.lines(), expected);
    assert_eq!(sink.troubles, []);
}
