#![allow(dead_code)]
mod options;
mod source;
