//! The page's files, as they are in `page/`: no build step, no external resources.

const FILES: &[(&str, &str, &[u8])] = &[
    ("/", "text/html; charset=utf-8", include_bytes!("../page/index.html")),
    ("/style.css", "text/css; charset=utf-8", include_bytes!("../page/style.css")),
    ("/main.js", "text/javascript; charset=utf-8", include_bytes!("../page/main.js")),
    ("/state.js", "text/javascript; charset=utf-8", include_bytes!("../page/state.js")),
    ("/format.js", "text/javascript; charset=utf-8", include_bytes!("../page/format.js")),
    ("/draw.js", "text/javascript; charset=utf-8", include_bytes!("../page/draw.js")),
    ("/well.js", "text/javascript; charset=utf-8", include_bytes!("../page/well.js")),
    ("/heat.js", "text/javascript; charset=utf-8", include_bytes!("../page/heat.js")),
    ("/latency.js", "text/javascript; charset=utf-8", include_bytes!("../page/latency.js")),
    ("/tables.js", "text/javascript; charset=utf-8", include_bytes!("../page/tables.js")),
    ("/icon.svg", "image/svg+xml", include_bytes!("../page/icon.svg")),
];

/// A file of the page: its media type and its bytes.
pub fn file(path: &str) -> Option<(&'static str, &'static [u8])> {
    FILES.iter().find(|(name, ..)| *name == path).map(|(_, kind, bytes)| (*kind, *bytes))
}
