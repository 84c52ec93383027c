//! CORS: which web pages of other hosts may use a bucket; S3's rules, and answers to browsers.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use s3s::dto::CORSRule;
use s3s::{S3Result, s3_error};
use wildmatch::WildMatchPattern;

/// S3's limit of rules of a bucket.
const RULES_MAX: usize = 100;
const METHODS: [&str; 5] = ["GET", "PUT", "POST", "DELETE", "HEAD"];

/// Refuses invalid rules.
pub fn check(rules: &[CORSRule]) -> S3Result<()> {
    if rules.is_empty() || rules.len() > RULES_MAX {
        return Err(s3_error!(MalformedXML, "a bucket has 1 to {RULES_MAX} CORS rules"));
    }
    for rule in rules {
        if let Some(method) = rule.allowed_methods.iter().find(|method| !METHODS.contains(&method.as_str())) {
            return Err(s3_error!(
                InvalidRequest,
                "Found unsupported HTTP method in CORS config. Unsupported method is {}",
                method.escape_default()
            ));
        }
        let texts = rule.allowed_origins.iter().chain(rule.allowed_headers.iter().flatten());
        if texts.into_iter().any(|text| text.matches('*').count() > 1) {
            return Err(s3_error!(InvalidRequest, "an origin or header can have one `*` at most"));
        }
        if rule.allowed_origins.is_empty() || rule.allowed_methods.is_empty() {
            return Err(s3_error!(MalformedXML, "a CORS rule has origins and methods"));
        }
    }
    Ok(())
}

/// A browser's question for a page.
pub struct CorsRequest<'a> {
    /// Origin of the page.
    pub origin: &'a str,
    /// Method that it wants to use.
    pub method: &'a str,
    /// Headers that it wants to send, in one text.
    pub headers: Option<&'a str>,
}

/// Returns the headers of a positive answer; `None` if no rule matches.
pub fn answer(rules: &[CORSRule], asked: &CorsRequest<'_>) -> Option<HeaderMap> {
    let wanted: Vec<String> = asked
        .headers
        .unwrap_or_default()
        .split(',')
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| !name.is_empty())
        .collect();
    let allows = |rule: &&CORSRule| {
        let patterns = rule.allowed_headers.as_deref().unwrap_or_default();
        let allowed: Vec<String> = patterns.iter().map(|pattern| pattern.to_ascii_lowercase()).collect();
        rule.allowed_origins.iter().any(|pattern| fits(pattern, asked.origin))
            && rule.allowed_methods.iter().any(|method| method == asked.method)
            && wanted.iter().all(|name| allowed.iter().any(|pattern| fits(pattern, name)))
    };
    let rule = rules.iter().find(allows)?;
    let is_any = rule.allowed_origins.iter().any(|origin| origin == "*");
    let mut headers = HeaderMap::new();
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    set(header::ACCESS_CONTROL_ALLOW_ORIGIN, if is_any { "*" } else { asked.origin });
    if !is_any {
        set(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
    }
    set(header::ACCESS_CONTROL_ALLOW_METHODS, &rule.allowed_methods.join(", "));
    set(header::VARY, "Origin, Access-Control-Request-Headers, Access-Control-Request-Method");
    if !wanted.is_empty() {
        set(header::ACCESS_CONTROL_ALLOW_HEADERS, &wanted.join(", "));
    }
    if let Some(exposed) = rule.expose_headers.as_ref().filter(|exposed| !exposed.is_empty()) {
        set(header::ACCESS_CONTROL_EXPOSE_HEADERS, &exposed.join(", "));
    }
    if let Some(seconds) = rule.max_age_seconds {
        set(header::ACCESS_CONTROL_MAX_AGE, &seconds.to_string());
    }
    Some(headers)
}

/// Returns whether a text matches a pattern, in which `*` is the only wildcard.
fn fits(pattern: &str, text: &str) -> bool {
    WildMatchPattern::<'*', '\0'>::new(pattern).matches(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(origin: &str, method: &str, headers: &[&str]) -> CORSRule {
        CORSRule {
            allowed_headers: Some(headers.iter().map(ToString::to_string).collect()),
            allowed_methods: vec![method.into()],
            allowed_origins: vec![origin.into()],
            ..CORSRule::default()
        }
    }

    #[test]
    fn rules_say_yes_or_nothing() {
        let rules = [rule("https://*.example.org", "GET", &["x-amz-*"]), rule("*", "PUT", &[])];
        let asked = |origin, method, headers| answer(&rules, &CorsRequest { origin, method, headers });
        let yes = asked("https://a.example.org", "GET", Some("X-Amz-Date, x-amz-meta-a")).unwrap();
        assert_eq!(yes[header::ACCESS_CONTROL_ALLOW_ORIGIN], "https://a.example.org");
        assert!(asked("https://example.com", "GET", None).is_none());
        assert!(asked("https://a.example.org", "GET", Some("authorization")).is_none());
        assert_eq!(asked("http://x", "PUT", None).unwrap()[header::ACCESS_CONTROL_ALLOW_ORIGIN], "*");
        assert!(check(&[rule("*", "PATCH", &[])]).is_err() && check(&[rule("*x*", "GET", &[])]).is_err());
    }
}
