//! Each rule by itself: what was seen, what follows, and the sentence that says why.

#[path = "rules/giving_up.rs"]
mod giving_up;
#[path = "rules/large.rs"]
mod large;
#[path = "rules/loads.rs"]
mod loads;
#[path = "rules/lost.rs"]
mod lost;
#[path = "rules/membership.rs"]
mod membership;
#[path = "rules/returns.rs"]
mod returns;
#[path = "rules/scene.rs"]
mod scene;
#[path = "rules/shared.rs"]
mod shared;
