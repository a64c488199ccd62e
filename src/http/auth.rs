//! Who asks, and what they may ask for.
//!
//! Loopback is no boundary on a node that users share: an open TCP port is open to every job. So
//! only callers that come through the Unix socket, whose file mode decides who may connect, or
//! that prove over TCP who they are, may start, hold, reload or see command lines.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use hyper::HeaderMap;

use crate::web_config::WebConfig;

/// Salt and bcrypt hash of a password that nobody has. Unknown users are compared with it, at the
/// cost of the known ones, so that the time taken does not tell which names exist.
const NOBODY: &str = "h4BP6bZtsIbuG6WL4e1lgOmn1zVq0EFfp.GK/bDA2OqtYWRROOpZC";

/// Passwords that may wait for their turn. At a usual cost that is a second; a scraper whose
/// password was right before does not wait at all.
const WAITING: usize = 16;

/// Why somebody is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The web configuration wants to know who they are, and they did not prove it.
    Unproven,
    /// Too many passwords wait to be checked.
    Busy,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Somebody on this node whom the socket's file mode let in.
    Socket { uid: u32 },
    /// Somebody with a password over TCP.
    User(String),
    /// Somebody with a verified certificate over TCP.
    Certificate,
    /// Anybody.
    Open,
}

/// How a connection came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Socket { uid: u32 },
    Tcp { certificate: bool },
}

impl Caller {
    /// Whether they may start, change and see what is not for everybody.
    pub(crate) fn trusted(&self) -> bool {
        match self {
            Caller::Socket { .. } | Caller::User(_) | Caller::Certificate => true,
            Caller::Open => false,
        }
    }

    /// The name for logs and for a hold's `by`.
    pub(crate) fn name(&self) -> String {
        match self {
            Caller::Socket { uid } => format!("uid {uid}"),
            Caller::User(name) => name.clone(),
            Caller::Certificate => "a client certificate".to_string(),
            Caller::Open => "anybody".to_string(),
        }
    }
}

/// The user name and password of an `Authorization: Basic` header.
pub(crate) fn basic(headers: &HeaderMap) -> Option<(String, String)> {
    let value = headers.get(hyper::header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(base64(encoded.trim())?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    Some((user.to_string(), password.to_string()))
}

/// Decodes standard base64 with its padding.
fn base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if !text.len().is_multiple_of(4) || text.len() - digits.len() > 2 {
        return None;
    }
    let (mut bytes, mut bits, mut held) = (Vec::with_capacity(text.len() * 3 / 4), 0u32, 0u32);
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from((bits >> held) & 0xff).ok()?);
        }
    }
    Some(bytes)
}

/// Checks passwords, one at a time: a hash takes some 60 ms of a core by design, and a flood of
/// wrong passwords must not take more than one core from the jobs of this node.
#[derive(Debug)]
pub(crate) struct Passwords {
    one_at_a_time: tokio::sync::Mutex<()>,
    /// Places in the queue for that, the one at its head included.
    places: tokio::sync::Semaphore,
    /// The hash and password last found right, by user; so a scraper pays once.
    right: Mutex<HashMap<String, (String, String)>>,
}

impl Default for Passwords {
    fn default() -> Passwords {
        Passwords {
            one_at_a_time: tokio::sync::Mutex::default(),
            places: tokio::sync::Semaphore::new(WAITING),
            right: Mutex::default(),
        }
    }
}

impl Passwords {
    /// Who asks over TCP.
    pub(crate) async fn caller(
        &self,
        config: Option<&WebConfig>,
        headers: &HeaderMap,
        certificate: bool,
    ) -> Result<Caller, Denied> {
        let users = config.map(|config| &config.users).filter(|users| !users.is_empty());
        let Some(users) = users else {
            return Ok(if certificate { Caller::Certificate } else { Caller::Open });
        };
        let (user, password) = basic(headers).ok_or(Denied::Unproven)?;
        let known = users.get(&user);
        let remembered = || known.is_some_and(|hash| self.remembered(&user, hash, &password));
        if remembered() {
            return Ok(Caller::User(user));
        }
        let _place = self.places.try_acquire().map_err(|_| Denied::Busy)?;
        let _turn = self.one_at_a_time.lock().await;
        // The same password may have waited right before.
        if remembered() {
            return Ok(Caller::User(user));
        }
        let hash = known.cloned().unwrap_or_else(|| nobody(users.values()));
        let (tried, against) = (password.clone(), hash.clone());
        let right = tokio::task::spawn_blocking(move || bcrypt::verify(tried, &against).unwrap_or(false))
            .await
            .unwrap_or(false);
        if known.is_none() || !right {
            return Err(Denied::Unproven);
        }
        let mut remembered = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.retain(|user, _| users.contains_key(user));
        remembered.insert(user.clone(), (hash, password));
        Ok(Caller::User(user))
    }

    fn remembered(&self, user: &str, hash: &str, password: &str) -> bool {
        let remembered = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        remembered
            .get(user)
            .is_some_and(|(old, right)| old == hash && same(right.as_bytes(), password.as_bytes()))
    }
}

/// A hash of nobody's password that takes as long as the slowest of these.
fn nobody<'a>(hashes: impl Iterator<Item = &'a String>) -> String {
    let cost = hashes.filter_map(|hash| hash.parse::<bcrypt::HashParts>().ok()).map(|hash| hash.get_cost());
    format!("$2y${:02}${NOBODY}", cost.max().unwrap_or(bcrypt::DEFAULT_COST))
}

/// Compares without telling by its time how much is equal.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// Whether a browser sent this for a page of another site, which must not act in our name.
pub(crate) fn from_another_site(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    match text("sec-fetch-site") {
        Some(site) => !matches!(site, "same-origin" | "none"),
        None => match (text("origin"), text("host")) {
            (None, _) => false,
            (Some(origin), host) => origin.split_once("://").map(|(_, authority)| authority) != host,
        },
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    #[test]
    fn basic_is_read_and_nonsense_is_not() {
        let table = [
            ("Basic Qm9iOnMzY3JldA==", Some(("Bob", "s3cret"))),
            ("basic Qm9iOmE6Yg==", Some(("Bob", "a:b"))),
            ("Basic Qm9iOg==", Some(("Bob", ""))),
            ("Basic Qm9i", None),
            ("Basic Qm9iOnM", None),
            ("Basic ====", None),
            ("Basic Qm9i*A==", None),
            ("Bearer Qm9iOnMzY3JldA==", None),
            ("Basic", None),
        ];
        for (value, expected) in table {
            let found = basic(&headers(&[("authorization", value)]));
            let found = found.as_ref().map(|(user, password)| (user.as_str(), password.as_str()));
            assert_eq!(found, expected, "{value}");
        }
        assert_eq!(basic(&HeaderMap::new()), None);
    }

    #[test]
    fn a_page_of_another_site_is_known_by_what_browsers_send() {
        let table: [(&[(&str, &str)], bool); 8] = [
            (&[("host", "n1:10950")], false),
            (&[("sec-fetch-site", "same-origin")], false),
            (&[("sec-fetch-site", "none")], false),
            (&[("sec-fetch-site", "cross-site")], true),
            (&[("sec-fetch-site", "same-site")], true),
            (&[("host", "n1:10950"), ("origin", "http://n1:10950")], false),
            (&[("host", "n1:10950"), ("origin", "http://evil.example")], true),
            (&[("host", "n1:10950"), ("origin", "null")], true),
        ];
        for (pairs, expected) in table {
            assert_eq!(from_another_site(&headers(pairs)), expected, "{pairs:?}");
        }
    }

    #[tokio::test]
    async fn only_the_right_password_of_a_known_user_is_taken() {
        let hash = bcrypt::hash("s3cret", 4).unwrap();
        let config = WebConfig { users: [("Bob".to_string(), hash)].into(), ..WebConfig::default() };
        let passwords = Passwords::default();
        let right = headers(&[("authorization", "Basic Qm9iOnMzY3JldA==")]);
        // Twice: by hash, then from memory.
        for _ in 0..2 {
            let caller = passwords.caller(Some(&config), &right, false).await;
            assert_eq!(caller, Ok(Caller::User("Bob".to_string())));
        }
        let wrong = ["Basic Qm9iOnMzY3JlVA==", "Basic Ym9iOnMzY3JldA==", "Basic Og=="];
        for value in wrong {
            let caller = passwords.caller(Some(&config), &headers(&[("authorization", value)]), true).await;
            assert_eq!(caller, Err(Denied::Unproven), "{value}: a certificate does not replace the password");
        }
        assert_eq!(passwords.caller(Some(&config), &HeaderMap::new(), false).await, Err(Denied::Unproven));

        // A changed password forgets the old one.
        let changed = WebConfig {
            users: [("Bob".to_string(), bcrypt::hash("x", 4).unwrap())].into(),
            ..WebConfig::default()
        };
        assert_eq!(passwords.caller(Some(&changed), &right, false).await, Err(Denied::Unproven));
    }

    #[tokio::test]
    async fn without_users_a_certificate_is_trusted_and_nothing_is_not() {
        let passwords = Passwords::default();
        for (certificate, expected, trusted) in
            [(true, Caller::Certificate, true), (false, Caller::Open, false)]
        {
            for config in [None, Some(&WebConfig::default())] {
                let caller = passwords.caller(config, &HeaderMap::new(), certificate).await.unwrap();
                assert_eq!((caller.trusted(), caller), (trusted, expected.clone()));
            }
        }
    }

    #[tokio::test]
    async fn a_flood_of_wrong_passwords_waits_in_bounds_and_not_before_who_is_known() {
        let hash = bcrypt::hash("s3cret", 4).unwrap();
        let config = WebConfig { users: [("Bob".to_string(), hash)].into(), ..WebConfig::default() };
        let passwords = Passwords::default();
        let right = headers(&[("authorization", "Basic Qm9iOnMzY3JldA==")]);
        let wrong = headers(&[("authorization", "Basic Qm9iOnMzY3JlVA==")]);
        passwords.caller(Some(&config), &right, false).await.unwrap();
        let turn = passwords.one_at_a_time.lock().await;
        let mut flood: Vec<_> =
            (0..40).map(|_| Box::pin(passwords.caller(Some(&config), &wrong, false))).collect();
        let mut refused = 0;
        for one in &mut flood {
            match first_look(one.as_mut()) {
                None => {}
                Some(denied) => {
                    assert_eq!(denied, Err(Denied::Busy));
                    refused += 1;
                }
            }
        }
        assert_eq!(refused, 40 - WAITING);
        assert!(passwords.caller(Some(&config), &right, false).await.is_ok());
        drop((flood, turn));
        assert_eq!(passwords.caller(Some(&config), &wrong, false).await, Err(Denied::Unproven));
    }

    /// What a future has come to at its first look.
    fn first_look<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn nobody_costs_what_the_slowest_user_costs() {
        let hashes = [bcrypt::hash("a", 4).unwrap(), bcrypt::hash("b", 6).unwrap()];
        let hash = nobody(hashes.iter());
        assert_eq!(hash.parse::<bcrypt::HashParts>().unwrap().get_cost(), 6);
        assert_eq!(bcrypt::verify("password", &hash).ok(), Some(false));
    }
}
