//! Pyroscope's push API (push.v1.PusherService/Push, a unary call of the Connect protocol): a series of one gzipped
//! pprof profile. Its refusals are read as pkg/validation/validate.go of Pyroscope 2 words them.

use super::answer::Verdict;
use super::{Part, service};
use crate::export::pprof::message as pb;
use crate::text::hexadecimal;
use flate2::{Compression, GzBuilder};
use prost::Message;
use std::collections::BTreeMap;
use std::io::Write;

#[derive(Clone, PartialEq, Message)]
struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    series: Vec<Series>,
}

#[derive(Clone, PartialEq, Message)]
struct Series {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<LabelPair>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<RawSample>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct RawSample {
    #[prost(bytes = "vec", tag = "1")]
    raw_profile: Vec<u8>,
    #[prost(string, tag = "2")]
    id: String,
}

/// Most locations of a stack. Pyroscope takes more, but leaves the innermost ones out.
const LOCATIONS_MAX: usize = 1000;
/// In the place of the outermost frames of deeper stacks.
const LEFT_OUT: &str = "[outer frames left out]";

/// The body of a request.
pub(super) fn encode(part: &Part<'_>) -> Vec<u8> {
    let profile = with_time(cut_outside(part.profile.clone()));
    let mut packed = GzBuilder::new().write(Vec::new(), Compression::default());
    // Writing to memory doesn't fail.
    let _ = packed.write_all(&profile.encode_to_vec());
    let sample = RawSample {
        raw_profile: packed.finish().unwrap_or_default(),
        id: hyphenated(&part.id),
    };
    let labels = labels(part).into_iter();
    let labels = labels.map(|(name, value)| LabelPair { name, value });
    let series = Series {
        labels: labels.collect(),
        samples: vec![sample],
    };
    PushRequest {
        series: vec![series],
    }
    .encode_to_vec()
}

/// A profile whose stacks have at most [`LOCATIONS_MAX`] locations, the innermost ones.
fn cut_outside(mut profile: pb::Profile) -> pb::Profile {
    let is_deep = |sample: &&mut pb::Sample| sample.location_id.len() > LOCATIONS_MAX;
    let (location_id, function_id) = (
        profile.location.len() as u64 + 1,
        profile.function.len() as u64 + 1,
    );
    let mut deep = 0;
    for sample in profile.sample.iter_mut().filter(is_deep) {
        sample.location_id.truncate(LOCATIONS_MAX - 1);
        sample.location_id.push(location_id);
        deep += 1;
    }
    if deep > 0 {
        profile.string_table.push(LEFT_OUT.to_owned());
        profile.function.push(pb::Function {
            id: function_id,
            name: profile.string_table.len() as i64 - 1,
            ..pb::Function::default()
        });
        profile.location.push(pb::Location {
            id: location_id,
            line: vec![pb::Line {
                function_id,
                line: 0,
            }],
            ..pb::Location::default()
        });
    }
    profile
}

/// A profile of counts with their times, too: what Pyroscope shows first is CPU time.
fn with_time(mut profile: pb::Profile) -> pb::Profile {
    let is_counted = profile.sample_type.first() != profile.period_type.as_ref();
    if let Some(time) = profile.period_type.filter(|_| is_counted) {
        profile.sample_type.push(time);
        for sample in &mut profile.sample {
            let count = sample.value.first().copied().unwrap_or(0);
            sample.value.push(count.saturating_mul(profile.period));
        }
    }
    profile
}

/// The labels of the series: those of the recording under names that every version takes, its service, and the type.
fn labels(part: &Part<'_>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for (key, value) in &part.recording.metadata().labels {
        // Of two keys that become one name, the first counts.
        labels.entry(name_of(key)).or_insert_with(|| value.clone());
    }
    labels.remove("service");
    labels.insert(
        "service_name".to_owned(),
        service(part.recording).to_owned(),
    );
    let kind = part
        .profile
        .period_type
        .or(part.profile.sample_type.first().copied());
    let kind = kind.and_then(|kind| part.profile.string_table.get(kind.kind as usize));
    let kind = match kind.map_or("", String::as_str) {
        "cpu" | "samples" | "" => "process_cpu",
        kind => kind,
    };
    labels.insert("__name__".to_owned(), kind.to_owned());
    labels
}

/// A key as a name of letters, digits and `_`, which doesn't begin as names that servers reserve.
fn name_of(key: &str) -> String {
    let name = key.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
    if name.starts_with("__") || name.starts_with(|first: char| first.is_ascii_digit()) {
        format!("label_{name}")
    } else {
        name
    }
}

fn hyphenated(id: &[u8; 16]) -> String {
    let parts = [&id[..4], &id[4..6], &id[6..8], &id[8..10], &id[10..]];
    parts.map(hexadecimal).join("-")
}

/// The answer to an accepted push says nothing.
pub(super) fn accepted(_body: &[u8]) -> Verdict {
    Verdict::Accepted { warning: None }
}

/// The message of an error of the Connect protocol.
pub(super) fn text(body: &[u8]) -> Option<String> {
    let error: serde_json::Value = serde_json::from_slice(body).ok()?;
    Some(error.get("message")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_names_that_every_version_takes() {
        for (key, name) in [
            ("version", "version"),
            ("k8s.pod-name", "k8s_pod_name"),
            ("__name__", "label___name__"),
            ("1st", "label_1st"),
        ] {
            assert_eq!(name_of(key), name);
        }
    }

    #[test]
    fn deep_stacks_lose_their_outermost_frames() {
        let sample = |locations: u64| pb::Sample {
            location_id: (1..=locations).collect(),
            ..pb::Sample::default()
        };
        let profile = pb::Profile {
            sample: vec![sample(1000), sample(1500)],
            location: vec![pb::Location::default(); 1500],
            ..pb::Profile::default()
        };
        let cut = cut_outside(profile);
        assert_eq!(cut.sample[0], sample(1000));
        let locations = &cut.sample[1].location_id;
        assert_eq!(
            (locations[0], locations[998], locations[999]),
            (1, 999, 1501)
        );
        assert_eq!((locations.len(), cut.location[1500].id), (1000, 1501));
        assert_eq!(cut.string_table.last().unwrap(), LEFT_OUT);
    }

    #[test]
    fn ids_are_written_as_uuids() {
        let id: [u8; 16] = std::array::from_fn(|number| number as u8);
        assert_eq!(hyphenated(&id), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
