//! The policies that there are: Cenote's own, the rules that users wrote, and what was brought from outside.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_model::{Error, ErrorKind, PluginState, PolicyState, Response, Result};
use cenote_policy::schema::{Lifecycle, Schema};
use cenote_policy::{Policy, User, by_name};

use super::Tiering;
use crate::engine::core::Core;

/// The file in the store directory that has the rules of users.
pub const POLICY_FILE: &str = "policy.toml";
/// The policy that follows them.
pub(crate) const USER: &str = "user";
/// Longest schema.
const TEXT_BYTES_MAX: usize = 1 << 20;
const FOLLOWERS_MAX: usize = 1000;

/// Policies by their names, each made once.
#[derive(Default)]
pub struct Policies {
    made: BTreeMap<String, Arc<dyn Policy>>,
    /// From outside, guarded by whoever brought them.
    plugins: BTreeMap<String, Arc<dyn Policy>>,
    /// Those that could not be brought, and why.
    missing: Vec<(String, String)>,
    user: Option<Arc<dyn Policy>>,
    /// What users wrote, as it is followed.
    text: String,
    pub lifecycle: Vec<Lifecycle>,
    /// Why the file that was found is not followed.
    broken: Vec<String>,
    refused: String,
}

impl Policies {
    pub fn named(&mut self, name: &str) -> Option<Arc<dyn Policy>> {
        if name == USER {
            return self.user.clone();
        }
        if let Some(plugin) = self.plugins.get(name) {
            return Some(Arc::clone(plugin));
        }
        if !self.made.contains_key(name) {
            self.made.insert(name.to_owned(), by_name(name)?);
        }
        self.made.get(name).cloned()
    }
    fn follow(&mut self, text: &str, mut schema: Schema) {
        // The engine itself follows the life cycle, of all containers.
        self.lifecycle = std::mem::take(&mut schema.lifecycle);
        self.user = Some(Arc::new(User::new(Arc::new(schema))));
        text.clone_into(&mut self.text);
        self.broken.clear();
    }
}

impl Tiering {
    /// Adds a policy from outside: containers choose it by its name. The caller guards it ([`cenote_policy::Guard`]).
    pub fn add_policy(&mut self, core: &mut Core, policy: Arc<dyn Policy>) -> Result<()> {
        let name = policy.name().to_owned();
        if by_name(&name).is_some() || name == USER {
            return Err(Error::new(ErrorKind::InvalidInput, format!("policy `{name}`"))
                .because("Cenote has one of that name")
                .try_next("give it another name"));
        }
        core.state.containers.policies.insert(name.clone());
        self.policies.plugins.insert(name, policy);
        Ok(())
    }

    /// A policy from outside could not be brought, so that nothing follows it: this is told with the others.
    pub fn note_missing_policy(&mut self, what: &str, why: &str) {
        self.policies.missing.push((what.to_owned(), why.to_owned()));
    }

    /// Follows the rules in the store directory, if there are any that can be followed.
    pub fn read_policy(&mut self, core: &mut Core) {
        let bytes = match core.seams.meta.read_file(POLICY_FILE) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => {
                self.policies.broken = vec![error.to_string()];
                return;
            }
        };
        let text = String::from_utf8_lossy(&bytes);
        match Schema::parse(&text) {
            // Tiers may be away for now: what rules say of them is passed over.
            Ok(schema) => {
                self.policies.follow(&text, schema);
                core.state.containers.policies.insert(USER.to_owned());
            }
            Err(fault) => self.policies.broken = vec![fault.to_string()],
        }
    }

    pub fn policy_set(&mut self, core: &mut Core, text: Option<&str>, dry_run: bool) -> Result<Response> {
        core.update_clock();
        let Some(text) = text else {
            if !dry_run {
                match core.seams.meta.remove(POLICY_FILE) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
                let Policies { plugins, missing, .. } = std::mem::take(&mut self.policies);
                self.policies = Policies { plugins, missing, ..Policies::default() };
                core.state.containers.policies.remove(USER);
                self.rules.forget();
            }
            return Ok(Response::Done);
        };
        let schema = checked(core, text).map_err(|faults| {
            let all = faults.join("; ");
            if !dry_run {
                self.policies.refused.clone_from(&all);
            }
            let stays = if self.policies.text.is_empty() { "" } else { "; the one before is followed on" };
            Error::new(ErrorKind::InvalidInput, "the policy")
                .because(all)
                .try_next(format!("mend these lines and set it again{stays}"))
        })?;
        if !dry_run {
            core.seams.meta.write_file(POLICY_FILE, text.as_bytes())?;
            self.policies.follow(text, schema);
            self.policies.refused.clear();
            core.state.containers.policies.insert(USER.to_owned());
            self.rules.forget();
        }
        Ok(Response::Done)
    }

    pub fn policy_show(&mut self, core: &mut Core) -> PolicyState {
        let policies = &self.policies;
        let mut faults = policies.broken.clone();
        if !policies.text.is_empty() {
            faults.extend(checked(core, &policies.text).err().unwrap_or_default());
        }
        let mut followers: Vec<String> = (core.state.containers.iter())
            .filter(|container| container.snapshot.is_none() && container.spec.policy == USER)
            .map(|container| container.label.clone())
            .collect();
        followers.sort_unstable();
        followers.truncate(FOLLOWERS_MAX);
        let state = |policy: &Arc<dyn Policy>| PluginState {
            name: policy.name().to_owned(),
            about: policy.about().to_owned(),
            failure: policy.failure().map(|why| why.to_string()).unwrap_or_default(),
        };
        let gone = |(what, why): &(String, String)| PluginState {
            name: what.clone(),
            about: String::new(),
            failure: format!("was not loaded: {why}"),
        };
        PolicyState {
            text: policies.text.clone(),
            faults,
            refused: policies.refused.clone(),
            followers,
            plugins: policies.plugins.values().map(state).chain(policies.missing.iter().map(gone)).collect(),
            rules: self.rule_states(),
            deletes_held: core.state.times.held_why(),
        }
    }

    /// What decides for a container, in a sentence; and what is wrong with it, if anything is.
    pub fn policy_words(&mut self, name: &str) -> String {
        let name = if name.is_empty() { "fast-first" } else { name };
        match self.policies.named(name) {
            Some(policy) => {
                let failure = policy.failure().map(|why| format!("; it {why}")).unwrap_or_default();
                format!("placement policy `{name}`: {}{failure}", policy.about())
            }
            None if name == USER => {
                let why = self.policies.broken.first().map_or("there is none", String::as_str);
                format!("placement policy `{name}`: without a file of rules ({why}), so `fast-first` decides")
            }
            None => format!("placement policy `{name}`: from a plugin that is not loaded, so `fast-first` decides"),
        }
    }
}

/// The schema, if it reads well and makes sense for the tiers; else every fault.
fn checked(core: &Core, text: &str) -> Result<Schema, Vec<String>> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(vec![format!("it has {} bytes, at most {TEXT_BYTES_MAX} are read", text.len())]);
    }
    let schema = Schema::parse(text).map_err(|fault| vec![fault.to_string()])?;
    let faults: Vec<String> = schema.check(&super::view::tier_views(core)).iter().map(ToString::to_string).collect();
    if faults.is_empty() { Ok(schema) } else { Err(faults) }
}
