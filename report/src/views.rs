//! Views for people: a gathered profile goes in, text or a picture comes out. Every one says what
//! it rests on: how many samples, and what was lost, late or cut.

pub mod caption;
pub mod screen;

pub mod annotate;
pub mod callers;
pub mod chart;
pub mod dump;
pub mod flame;
pub mod heatmap;
pub mod html;
pub mod info;
pub mod markdown;
pub mod top;
pub mod tree;
pub mod workflow;
