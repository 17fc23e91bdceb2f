//! OpenTelemetry's profiles over HTTP (opentelemetry/proto/profiles/v1development/profiles.proto of version 1.10; 1.11
//! has the same numbers, older ones have not). One profile of one resource a request. What an answer with success says
//! is read, too: it can be a refusal.

mod message;

use super::answer::{Verdict, line};
use super::{Part, service};
use crate::export::pprof::message as pb;
use message as otlp;
use prost::Message;
use std::collections::HashMap;

/// The body of a request.
pub(super) fn encode(part: &Part<'_>) -> Vec<u8> {
    let mut dictionary = Dictionary::of(&part.profile);
    let profile = dictionary.profile(part);
    let labels = part.recording.metadata().labels.iter();
    let labels = labels.filter(|(key, _)| key != "service" && key != "service.name");
    let mut attributes = vec![attribute("service.name", service(part.recording))];
    attributes.extend(labels.map(|(key, value)| attribute(key, value)));
    let scope = otlp::Scope {
        name: "uniprof".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let request = otlp::ExportRequest {
        resource_profiles: vec![otlp::ResourceProfiles {
            resource: Some(otlp::Resource { attributes }),
            scope_profiles: vec![otlp::ScopeProfiles {
                scope: Some(scope),
                profiles: vec![profile],
            }],
        }],
        dictionary: Some(dictionary.made),
    };
    request.encode_to_vec()
}

fn attribute(key: &str, value: &str) -> otlp::KeyValue {
    otlp::KeyValue {
        key: key.to_owned(),
        value: Some(text_value(value)),
    }
}

fn text_value(text: &str) -> otlp::AnyValue {
    otlp::AnyValue {
        value: Some(otlp::Value::Text(text.to_owned())),
    }
}

/// The tables that a profile refers to. Entry 0 of each is empty, as the format requires.
struct Dictionary {
    made: otlp::Dictionary,
    stacks: HashMap<Vec<i32>, i32>,
}

impl Dictionary {
    /// The tables of a pprof profile, whose numbers begin at 1: so an entry's number is its index here.
    fn of(profile: &pb::Profile) -> Dictionary {
        let mut dictionary = Dictionary {
            made: otlp::Dictionary {
                string_table: profile.string_table.clone(),
                mapping_table: vec![otlp::Mapping::default()],
                location_table: vec![otlp::Location::default()],
                function_table: vec![otlp::Function::default()],
                link_table: vec![otlp::Link::default()],
                attribute_table: vec![otlp::Attribute::default()],
                stack_table: vec![otlp::Stack::default()],
            },
            stacks: HashMap::new(),
        };
        let build_id = dictionary.text("process.executable.build_id.gnu");
        for mapping in &profile.mapping {
            let id = profile.string_table.get(mapping.build_id as usize);
            let id = id
                .filter(|id| !id.is_empty())
                .map(|id| dictionary.attribute(build_id, id));
            dictionary.made.mapping_table.push(otlp::Mapping {
                memory_start: mapping.memory_start,
                memory_limit: mapping.memory_limit,
                file_offset: mapping.file_offset,
                filename_strindex: mapping.filename as i32,
                attribute_indices: id.into_iter().collect(),
            });
        }
        for function in &profile.function {
            dictionary.made.function_table.push(otlp::Function {
                name_strindex: function.name as i32,
                system_name_strindex: function.system_name as i32,
                filename_strindex: function.filename as i32,
                start_line: function.start_line,
            });
        }
        for location in &profile.location {
            let lines = location.line.iter().map(|line| otlp::Line {
                function_index: line.function_id as i32,
                line: line.line,
            });
            dictionary.made.location_table.push(otlp::Location {
                mapping_index: location.mapping_id as i32,
                address: location.address,
                lines: lines.collect(),
            });
        }
        dictionary
    }

    fn text(&mut self, text: &str) -> i32 {
        self.made.string_table.push(text.to_owned());
        self.made.string_table.len() as i32 - 1
    }

    fn attribute(&mut self, key_strindex: i32, value: &str) -> i32 {
        self.made.attribute_table.push(otlp::Attribute {
            key_strindex,
            value: Some(text_value(value)),
        });
        self.made.attribute_table.len() as i32 - 1
    }

    /// The profile: one value a sample, of one type.
    fn profile(&mut self, part: &Part<'_>) -> otlp::Profile {
        let profile = &part.profile;
        let mut samples = Vec::new();
        for sample in &profile.sample {
            let locations: Vec<i32> = sample.location_id.iter().map(|id| *id as i32).collect();
            let next = self.made.stack_table.len() as i32;
            let stack_index = *self.stacks.entry(locations.clone()).or_insert(next);
            if stack_index == next {
                let location_indices = locations;
                self.made.stack_table.push(otlp::Stack { location_indices });
            }
            samples.push(otlp::Sample {
                stack_index,
                values: sample.value.clone(),
            });
        }
        let of_pprof = |value: pb::ValueType| otlp::ValueType {
            type_strindex: value.kind as i32,
            unit_strindex: value.unit as i32,
        };
        otlp::Profile {
            sample_type: profile.sample_type.first().copied().map(of_pprof),
            samples,
            time_unix_nano: u64::try_from(profile.time_nanos).unwrap_or(0),
            duration_nano: u64::try_from(profile.duration_nanos).unwrap_or(0),
            period_type: profile.period_type.map(of_pprof),
            period: profile.period,
            profile_id: part.id.to_vec(),
        }
    }
}

/// Whether an answer with success says that nothing was rejected. Some servers answer protobuf with JSON.
pub(super) fn accepted(body: &[u8]) -> Verdict {
    let (rejected, words) = match serde_json::from_slice::<serde_json::Value>(body) {
        Ok(answer) => {
            let partial = &answer["partialSuccess"];
            // JSON of protobuf has 64-bit numbers as text.
            let rejected = &partial["rejectedProfiles"];
            let number = rejected.as_str().and_then(|text| text.parse().ok());
            let words = partial["errorMessage"].as_str().unwrap_or_default();
            (number.or(rejected.as_i64()).unwrap_or(0), line(words))
        }
        Err(_) => {
            let answer = otlp::ExportResponse::decode(body).unwrap_or_default();
            let partial = answer.partial_success.unwrap_or_default();
            (partial.rejected_profiles, line(&partial.error_message))
        }
    };
    if rejected > 0 {
        let words = if words.is_empty() {
            "no reason"
        } else {
            &words
        };
        return Verdict::Refused(format!(
            "it accepts the request, but not the profile: {words}"
        ));
    }
    Verdict::Accepted {
        warning: Some(words).filter(|words| !words.is_empty()),
    }
}

/// The message of a google.rpc.Status, which refusals have as protobuf; of JSON if the server has no protobuf.
pub(super) fn text(body: &[u8]) -> Option<String> {
    if let Ok(serde_json::Value::Object(fields)) = serde_json::from_slice(body) {
        return Some(fields.get("message")?.as_str()?.to_owned());
    }
    let status = otlp::Status::decode(body).ok()?;
    Some(status.message).filter(|message| !message.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_with_success_are_read_in_either_form() {
        let warning = |text: &str| Some(text.to_owned());
        for (body, expected) in [
            (&b""[..], Ok(None)),
            (b"{}", Ok(None)),
            (b"\x0a\x08\x12\x06caveat", Ok(warning("caveat"))),
            (
                br#"{"partialSuccess":{"errorMessage":"caveat"}}"#,
                Ok(warning("caveat")),
            ),
            (b"\x0a\x0c\x08\x01\x12\x08no frame", Err("no frame")),
            (
                br#"{"partialSuccess":{"rejectedProfiles":"1","errorMessage":"no frame"}}"#,
                Err("no frame"),
            ),
            (
                br#"{"partialSuccess":{"rejectedProfiles":1}}"#,
                Err("no reason"),
            ),
        ] {
            match (accepted(body), expected) {
                (Verdict::Accepted { warning }, Ok(expected)) => assert_eq!(warning, expected),
                (Verdict::Refused(why), Err(words)) => assert!(why.ends_with(words), "{why}"),
                (verdict, _) => panic!("{verdict:?} of {body:?}"),
            }
        }
    }
}
