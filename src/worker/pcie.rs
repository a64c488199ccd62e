use super::{Found, Request};

pub(crate) fn read(_request: &Request) -> Found<()> {
    (Vec::new(), Vec::new())
}
