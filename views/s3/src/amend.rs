//! Corrections where the library differs from S3: requests are completed before the library sees them, and its answers are
//! corrected afterwards.
//!
//! This module knows the library's words, but not what an operation does.

use http::header::{CONTENT_LENGTH, DATE, HeaderName, HeaderValue, LOCATION};
use http::{HeaderMap, Method, StatusCode, Uri};
use s3s::dto::{Timestamp, TimestampFormat};
use s3s::{Body, HttpResponse};

const AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
/// The library's messages for a form that does not match its policy. In S3 the policy is valid, and the form is denied.
const FORM_FAILS: [&str; 2] = ["Policy condition ", "Bucket in form field "];

/// The parts of a request that its answer depends on.
#[derive(Clone, Copy)]
pub struct Request {
    is_form: bool,
    is_about_attributes: bool,
}

impl Request {
    /// Takes them from a request's head.
    pub fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Self {
        let kind = headers.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let query = uri.query().unwrap_or_default();
        let names = || query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
        Self {
            is_form: method == Method::POST && kind.starts_with("multipart/form-data"),
            is_about_attributes: method == Method::GET && names().any(|name| name == "attributes"),
        }
    }
}

/// Adds `x-amz-date` from `Date` to a signed request that has only the latter.
pub fn complete(headers: &mut HeaderMap) {
    if headers.contains_key(&AMZ_DATE) || !headers.contains_key(http::header::AUTHORIZATION) {
        return;
    }
    let date = headers.get(DATE).and_then(|date| date.to_str().ok()).unwrap_or_default();
    // botocore writes the time zone as in mail.
    let date = match date.strip_suffix("-0000").or(date.strip_suffix("+0000")) {
        Some(date) => format!("{date}GMT"),
        None => date.to_owned(),
    };
    let Ok(time) = Timestamp::parse(TimestampFormat::HttpDate, &date) else { return };
    let time = time::OffsetDateTime::from(time).to_offset(time::UtcOffset::UTC);
    let (date, clock) = (time.date(), time.time());
    let text = format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        clock.hour(),
        clock.minute(),
        clock.second()
    );
    if let Ok(value) = HeaderValue::from_str(&text) {
        headers.insert(AMZ_DATE, value);
    }
}

/// Returns the refusal of a request that the library must not see: an address signed for 0 s or less has expired.
pub fn refusal(uri: &Uri) -> Option<HttpResponse> {
    let mut pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    let (_, lives_s) = pairs.find(|(name, _)| *name == "X-Amz-Expires")?;
    lives_s.parse::<i64>().is_ok_and(|lives_s| lives_s <= 0).then(|| {
        let text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>";
        let mut response = http::Response::new(Body::from(text.to_owned()));
        *response.status_mut() = StatusCode::FORBIDDEN;
        response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        response
    })
}

/// Corrects an answer, and adds the request's number to the body of an error.
pub fn mend(response: &mut HttpResponse, request: Request, number: &str) {
    const END: &str = "</Error>";
    let status = response.status();
    if status == StatusCode::NOT_MODIFIED {
        *response.body_mut() = Body::empty();
        response.headers_mut().remove(http::header::CONTENT_TYPE);
        return;
    }
    if request.is_form && status == StatusCode::SEE_OTHER {
        quote_etag(response.headers_mut());
    }
    let is_error = status.is_client_error() || status.is_server_error();
    if !is_error && !request.is_about_attributes {
        return;
    }
    let Some(body) = response.body().bytes() else { return };
    let Ok(text) = std::str::from_utf8(&body) else { return };
    let told = if request.is_about_attributes && !is_error {
        without_quotes(text)
    } else if let Some(text) = text.strip_suffix(END) {
        let text = text.to_owned();
        let is_form_wrong =
            request.is_form && FORM_FAILS.iter().any(|words| text.contains(&format!("<Message>{words}")));
        let text = if is_form_wrong {
            *response.status_mut() = StatusCode::FORBIDDEN;
            text.replace("<Code>InvalidPolicyDocument</Code>", "<Code>AccessDenied</Code>")
        } else {
            text
        };
        format!("{text}<RequestId>{number}</RequestId>{END}")
    } else {
        return;
    };
    response.headers_mut().remove(CONTENT_LENGTH);
    *response.body_mut() = Body::from(told);
}

/// Removes the quotes of ETags in attributes, which the library writes in one of two forms.
fn without_quotes(text: &str) -> String {
    ["\"", "&quot;"].iter().fold(text.to_owned(), |text, quote| {
        text.replace(&format!("<ETag>{quote}"), "<ETag>").replace(&format!("{quote}</ETag>"), "</ETag>")
    })
}

/// Adds quotes to the ETag in the address that a form redirects to.
fn quote_etag(headers: &mut HeaderMap) {
    let Some(location) = headers.get(LOCATION).and_then(|location| location.to_str().ok()) else { return };
    let Some((before, etag)) = location.rsplit_once("etag=") else { return };
    if let Ok(value) = HeaderValue::from_str(&format!("{before}etag=%22{etag}%22")) {
        headers.insert(LOCATION, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, text: &str) -> HttpResponse {
        let mut response = http::Response::new(Body::from(text.to_owned()));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response
    }
    fn text(response: &HttpResponse) -> String {
        String::from_utf8(response.body().bytes().unwrap().to_vec()).unwrap()
    }

    #[test]
    fn a_date_alone_will_do() {
        let mut headers = HeaderMap::new();
        headers.insert(DATE, HeaderValue::from_static("Mon, 23 Nov 2026 09:05:07 GMT"));
        complete(&mut headers);
        assert!(!headers.contains_key(&AMZ_DATE), "nothing is signed");
        headers.insert(http::header::AUTHORIZATION, HeaderValue::from_static("AWS4-HMAC-SHA256 x"));
        complete(&mut headers);
        assert_eq!(headers[&AMZ_DATE], "20261123T090507Z");
        headers.insert(DATE, HeaderValue::from_static("Tue, 24 Nov 2026 09:05:07 GMT"));
        complete(&mut headers);
        assert_eq!(headers[&AMZ_DATE], "20261123T090507Z", "what the client said stays");
        headers.remove(&AMZ_DATE);
        headers.insert(DATE, HeaderValue::from_static("Tue, 24 Nov 2026 09:05:07 -0000"));
        complete(&mut headers);
        assert_eq!(headers[&AMZ_DATE], "20261124T090507Z");
    }

    #[test]
    fn signed_for_no_time_is_expired() {
        let refused = |text: &str| refusal(&text.parse().unwrap()).map(|response| response.status().as_u16());
        assert_eq!(refused("/b/k?X-Amz-Expires=-7&x=y"), Some(403));
        assert_eq!(refused("/b/k?X-Amz-Expires=7"), None);
        assert_eq!(refused("/b/k?X-Amz-Expires=soon"), None, "the library says what it is");
        assert_eq!(refused("/b/k"), None);
    }

    #[test]
    fn forms_that_their_policy_forbids_are_denied() {
        let form = Request { is_form: true, is_about_attributes: false };
        let error = "<Error><Code>InvalidPolicyDocument</Code><Message>Policy condition 'eq' for</Message></Error>";
        let mut response = answer(400, error);
        mend(&mut response, form, "7");
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        assert!(text(&response).contains("<Code>AccessDenied</Code>") && text(&response).contains("<RequestId>7<"));
        let mut response = answer(400, "<Error><Code>InvalidPolicyDocument</Code><Message>no JSON</Message></Error>");
        mend(&mut response, form, "7");
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        let mut response = answer(303, "");
        response.headers_mut().insert(LOCATION, HeaderValue::from_static("http://h/?bucket=b&key=k&etag=abc"));
        mend(&mut response, form, "7");
        assert_eq!(response.headers()[LOCATION], "http://h/?bucket=b&key=k&etag=%22abc%22");
    }

    #[test]
    fn etags_of_attributes_have_no_quotes() {
        let about = Request { is_form: false, is_about_attributes: true };
        for quote in ["&quot;", "\""] {
            let mut response = answer(200, &format!("<Response><ETag>{quote}abc{quote}</ETag></Response>"));
            mend(&mut response, about, "7");
            assert_eq!(text(&response), "<Response><ETag>abc</ETag></Response>");
        }
    }
}
