//! Faults: the text of a plan, its rules, and the faults that they inject into tasks.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::rng;
use super::time::Time;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The device refuses a task that it could accept: [`Refused::Rejected`](super::Refused::Rejected).
    Refuse,
    /// The engine fails the task. Some bytes may have moved. The [profile](super::Profile::on_failure)
    /// determines the effect on the channel.
    Fail,
    /// The engine fails the task, and the channel is reset: all its other tasks in flight are aborted, and it
    /// halts until it is restarted.
    Reset,
    /// The task is done, but never reported. It occupies a slot of the queue until the channel is taken down.
    Lose,
    /// The channel stops making progress when the task starts. It still accepts tasks. To repair it, take the
    /// channel down and restart it.
    Stick,
    /// The device vanishes when the task ends: all tasks in flight on all channels are aborted, and every
    /// later submission is refused.
    Gone,
    /// The device dies when the task ends: the tasks in flight on all channels are never reported, and every
    /// later submission is refused. A driver can find out ([`Device::is_dead`](super::Device::is_dead)), as
    /// after a sticky error of a GPU.
    Dead,
    /// The task takes this additional time.
    Slow(Time),
    /// One bit of a destination is wrong, although the task is reported as done. If the task has no
    /// destination, its result is wrong.
    Corrupt,
    /// A task longer than the device's limit is accepted, fails in the engine, and resets the channel.
    /// Shorter tasks are not affected.
    Oversize,
}

impl Fault {
    /// Names in the text of a plan. `Slow` also needs its time.
    const NAMES: [(&'static str, Self); 10] = [
        ("refuse", Self::Refuse),
        ("fail", Self::Fail),
        ("reset", Self::Reset),
        ("lose", Self::Lose),
        ("stick", Self::Stick),
        ("gone", Self::Gone),
        ("dead", Self::Dead),
        ("slow", Self::Slow(Time::ZERO)),
        ("corrupt", Self::Corrupt),
        ("oversize", Self::Oversize),
    ];

    /// Returns the index in [`Fault::NAMES`].
    const fn index(self) -> usize {
        match self {
            Self::Refuse => 0,
            Self::Fail => 1,
            Self::Reset => 2,
            Self::Lose => 3,
            Self::Stick => 4,
            Self::Gone => 5,
            Self::Dead => 6,
            Self::Slow(_) => 7,
            Self::Corrupt => 8,
            Self::Oversize => 9,
        }
    }

    const fn bit(self) -> u16 {
        1 << self.index()
    }
}

/// The tasks that a rule applies to.
///
/// Tasks are counted from 1 on each channel when they are submitted. Submissions that a rule refuses are
/// counted. Submissions that are refused because the queue is full, the channel is down or the descriptor is
/// invalid are not counted. A restart does not reset the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum When {
    /// All tasks.
    Always,
    /// Tasks from the first number to the second, inclusive.
    Tasks(u64, u64),
    /// Every `n`th task.
    Every(u64),
    /// Once, at this time. `Reset`, `Stick`, `Gone` and `Dead` affect every open channel at that time, with
    /// or without tasks. Other faults affect the first task that is submitted afterwards.
    At(Time),
}

/// One rule of a [`FaultPlan`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultRule {
    /// The fault.
    pub fault: Fault,
    /// The tasks that the rule applies to.
    pub when: When,
    /// Probability that the rule applies to each of these tasks, from 0 to 1.
    pub chance: f64,
    /// Number of the channel, counted from 0 in the order of opening; all channels if `None`.
    pub channel: Option<u32>,
}

impl FaultRule {
    /// Returns a rule for every task on every channel.
    #[must_use]
    pub const fn new(fault: Fault) -> Self {
        Self { fault, when: When::Always, chance: 1.0, channel: None }
    }

    /// Returns a rule for the `n`th task of each channel, counted from 1.
    #[must_use]
    pub const fn nth(fault: Fault, n: u64) -> Self {
        Self { when: When::Tasks(n, n), ..Self::new(fault) }
    }

    /// Returns true if the rule affects whole channels at its time, without a task.
    pub(super) const fn needs_no_task(&self) -> bool {
        let affects_channels = matches!(self.fault, Fault::Reset | Fault::Stick | Fault::Gone | Fault::Dead);
        affects_channels && matches!(self.when, When::At(_))
    }
}

/// The injected faults of a device.
///
/// # Text
///
/// A plan is a list of rules, separated by `+`, `;`, `,` or white space. A rule is a fault, then `@` and its
/// tasks, then options as `:name=value`:
///
/// | fault | |
/// |---|---|
/// | `refuse` | the device refuses the task for now |
/// | `fail` | the engine fails the task |
/// | `reset` | the engine fails the task and resets the channel |
/// | `lose` | the task is done and never reported |
/// | `stick` | the channel stops making progress |
/// | `gone` | the device vanishes |
/// | `dead` | the device dies, and reports nothing any more |
/// | `slow` | the task takes longer, by the time in option `for` |
/// | `corrupt` | one bit of a destination is wrong; without a destination, the result is wrong |
/// | `oversize` | a task over the limit is accepted, fails in the engine and resets the channel |
///
/// | tasks | |
/// |---|---|
/// | `@5` | the fifth task of each channel |
/// | `@5-8`, `@5-` | the fifth to the eighth task; all tasks from the fifth on |
/// | `@every=100` | every hundredth task |
/// | `@t=20us` | once, at this [time](Time) |
/// | | without any of these: all tasks |
///
/// | option | |
/// |---|---|
/// | `:p=0.001` | only with this probability (not with `@t`) |
/// | `:ch=1` | only on this channel, counted from 0 |
/// | `:for=200us` | for `slow`: the additional time |
///
/// An empty text is an empty plan. [`Fault`] and [`When`] have the details.
///
/// ```
/// use dma_sim::model::FaultPlan;
///
/// let plan: FaultPlan = "fail@5+reset@100+lose:p=0.001+slow@1:for=200us".parse().unwrap();
/// assert_eq!(plan.rules.len(), 4);
/// assert_eq!(plan.to_string(), "fail@5+reset@100+lose:p=0.001+slow@1:for=200us");
///
/// let error = "fial@5".parse::<FaultPlan>().unwrap_err();
/// assert!(error.to_string().contains("no fault `fial`"));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultPlan {
    /// The rules. Several rules may apply to one task.
    pub rules: Vec<FaultRule>,
}

impl FaultPlan {
    /// Returns a plan without faults.
    #[must_use]
    pub const fn none() -> Self {
        Self { rules: Vec::new() }
    }

    /// Returns the plan with one more rule.
    #[must_use]
    pub fn with(mut self, rule: FaultRule) -> Self {
        self.rules.push(rule);
        self
    }
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, rule) in self.rules.iter().enumerate() {
            write!(f, "{}{rule}", if i == 0 { "" } else { "+" })?;
        }
        Ok(())
    }
}

impl fmt::Display for FaultRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Fault::NAMES[self.fault.index()].0)?;
        match self.when {
            When::Always => {}
            When::Tasks(from, to) if from == to => write!(f, "@{from}")?,
            When::Tasks(from, u64::MAX) => write!(f, "@{from}-")?,
            When::Tasks(from, to) => write!(f, "@{from}-{to}")?,
            When::Every(n) => write!(f, "@every={n}")?,
            When::At(t) => write!(f, "@t={t}")?,
        }
        if let Fault::Slow(by) = self.fault {
            write!(f, ":for={by}")?;
        }
        if self.chance != 1.0 {
            write!(f, ":p={}", self.chance)?;
        }
        if let Some(channel) = self.channel {
            write!(f, ":ch={channel}")?;
        }
        Ok(())
    }
}

/// A rule is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fault rule `{rule}`: {problem}")]
pub struct FaultPlanError {
    /// The rule's text.
    pub rule: String,
    /// The problem, with the remedy.
    pub problem: String,
}

impl FaultPlan {
    /// Checks the rules of a plan that was not parsed from text.
    ///
    /// # Errors
    ///
    /// Returns the first invalid rule.
    pub fn validate(&self) -> Result<(), FaultPlanError> {
        for rule in &self.rules {
            check(rule).map_err(|problem| FaultPlanError { rule: rule.to_string(), problem })?;
        }
        Ok(())
    }
}

fn check(rule: &FaultRule) -> Result<(), String> {
    if !(0.0..=1.0).contains(&rule.chance) {
        return Err("p must be from 0 to 1".to_owned());
    }
    match rule.when {
        When::Tasks(0, _) | When::Every(0) => Err("tasks are counted from 1".to_owned()),
        When::Tasks(from, to) if from > to => {
            Err(format!("{from} is greater than {to}; write the smaller number first"))
        }
        When::At(_) if rule.chance != 1.0 => {
            Err("p cannot be combined with @t, which applies once".to_owned())
        }
        _ => Ok(()),
    }
}

impl FromStr for FaultPlan {
    type Err = FaultPlanError;

    fn from_str(text: &str) -> Result<Self, FaultPlanError> {
        let separators = |c: char| matches!(c, '+' | ';' | ',') || c.is_whitespace();
        let rules = text
            .split(separators)
            .filter(|rule| !rule.is_empty())
            .map(|rule| parse_rule(rule).map_err(|problem| FaultPlanError { rule: rule.to_owned(), problem }))
            .collect::<Result<_, _>>()?;
        Ok(Self { rules })
    }
}

fn parse_rule(text: &str) -> Result<FaultRule, String> {
    let mut parts = text.split(':');
    let head = parts.next().unwrap_or_default();
    let (name, tasks) = head.split_once('@').map_or((head, None), |(name, tasks)| (name, Some(tasks)));
    let (_, fault) = Fault::NAMES.iter().find(|(known, _)| *known == name).ok_or_else(|| {
        let known: Vec<_> = Fault::NAMES.iter().map(|(known, _)| *known).collect();
        format!("no fault `{name}`; there are: {}", known.join(", "))
    })?;
    let mut rule = FaultRule::new(*fault);
    if let Some(tasks) = tasks {
        rule.when = parse_when(tasks)?;
    }
    let mut longer = None;
    for option in parts {
        let (key, value) = option
            .split_once('=')
            .ok_or_else(|| format!("option `{option}` has no value; write it as `name=value`"))?;
        match key {
            "p" => {
                rule.chance =
                    value.parse().map_err(|_| format!("p is `{value}`; give a number from 0 to 1"))?;
            }
            "ch" => {
                let bad = |_| format!("ch is `{value}`; give a channel's number, counted from 0");
                rule.channel = Some(value.parse().map_err(bad)?);
            }
            "for" => longer = Some(value.parse::<Time>().map_err(|e| format!("for: {e}"))?),
            _ => return Err(format!("no option `{key}`; there are: p, ch, for")),
        }
    }
    match (&mut rule.fault, longer) {
        (Fault::Slow(by), Some(longer)) => *by = longer,
        (Fault::Slow(_), None) => {
            return Err("give the additional time, such as `slow@1:for=200us`".to_owned());
        }
        (_, Some(_)) => return Err("option `for` is only for `slow`".to_owned()),
        _ => {}
    }
    check(&rule)?;
    Ok(rule)
}

fn parse_when(text: &str) -> Result<When, String> {
    let number = |text: &str| {
        let bad = |_| {
            format!("`{text}` is not a task number; write `@5`, `@5-8`, `@5-`, `@every=100` or `@t=20us`")
        };
        text.parse::<u64>().map_err(bad)
    };
    if let Some(every) = text.strip_prefix("every=") {
        return number(every).map(When::Every);
    }
    if let Some(time) = text.strip_prefix("t=") {
        return time.parse().map(When::At).map_err(|e| e.to_string());
    }
    match text.split_once('-') {
        None => number(text).map(|n| When::Tasks(n, n)),
        Some((from, "")) => Ok(When::Tasks(number(from)?, u64::MAX)),
        Some((from, to)) => Ok(When::Tasks(number(from)?, number(to)?)),
    }
}

/// The faults of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// One bit for each fault, at its index in [`Fault::NAMES`].
    bits: u16,
    /// Additional time, summed over all rules with [`Fault::Slow`].
    pub slow: Time,
}

impl Faults {
    /// Returns true if the task has no fault.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// Returns true if the task has this fault.
    #[inline]
    #[must_use]
    pub const fn has(self, fault: Fault) -> bool {
        self.bits & fault.bit() != 0
    }

    /// Removes a fault that does not apply to the task.
    pub(super) const fn remove(&mut self, fault: Fault) {
        self.bits &= !fault.bit();
    }
}

impl Extend<Fault> for Faults {
    fn extend<I: IntoIterator<Item = Fault>>(&mut self, faults: I) {
        for fault in faults {
            self.bits |= fault.bit();
            if let Fault::Slow(by) = fault {
                self.slow += by;
            }
        }
    }
}

/// Applies the rules of a plan to tasks.
///
/// The faults of a task depend only on the seed and on the task's channel and number, so any thread may
/// request the faults of any task, in any order. The exception is a rule with a [time](When::At): it applies
/// to the first task whose faults are requested after that time.
#[derive(Debug)]
pub struct FaultInjector {
    /// Each rule, and true if the rule has a time and was already applied.
    rules: Vec<(FaultRule, AtomicBool)>,
    seed: u64,
    started: Instant,
}

impl FaultInjector {
    /// Creates an injector for a [valid](FaultPlan::validate) plan. For [`strike`](Self::strike), the times
    /// of rules count from this call on.
    #[must_use]
    pub fn new(plan: FaultPlan, seed: u64) -> Self {
        let rules = plan.rules.into_iter().map(|rule| (rule, AtomicBool::new(false))).collect();
        Self { rules, seed, started: Instant::now() }
    }

    /// Returns true if any rule has this fault.
    #[must_use]
    pub fn may(&self, fault: Fault) -> bool {
        self.rules.iter().any(|(rule, _)| rule.fault.index() == fault.index())
    }

    /// Returns true if the plan has no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the faults of task `number` of a channel, at the time since this injector was created. Tasks
    /// are counted from 1, channels from 0.
    pub fn strike(&self, channel: u32, number: u64) -> Faults {
        self.strike_at(channel, number, self.started.elapsed().into())
    }

    /// Returns the same faults as [`strike`](Self::strike), but at the time `now` of a device.
    #[cold]
    pub fn strike_at(&self, channel: u32, number: u64, now: Time) -> Faults {
        let applies = |(purpose, (rule, fired)): (u64, &(FaultRule, AtomicBool))| {
            let meant = rule.channel.is_none_or(|only| only == channel)
                && match rule.when {
                    When::Always => true,
                    When::Tasks(from, to) => (from..=to).contains(&number),
                    When::Every(n) => number.is_multiple_of(n),
                    When::At(at) => at <= now && !fired.swap(true, Ordering::Relaxed),
                };
            let purpose = u64::from(channel) << 32 | purpose;
            (meant && self.chance(rule.chance, number, purpose)).then_some(rule.fault)
        };
        let mut faults = Faults::default();
        faults.extend((1..).zip(&self.rules).filter_map(applies));
        faults
    }

    /// Returns true with probability `chance`. The rules use the purposes from 1 on, in their order.
    #[must_use]
    pub fn chance(&self, chance: f64, number: u64, purpose: u64) -> bool {
        // 53 bits, which is the precision of an `f64`.
        chance >= 1.0 || ((self.random(number, purpose) >> 11) as f64) < chance * (1_u64 << 53) as f64
    }

    /// Returns a random number that depends on the seed, the number of a task, and the purpose.
    #[must_use]
    pub const fn random(&self, number: u64, purpose: u64) -> u64 {
        rng::mix(rng::mix(self.seed ^ purpose.rotate_left(32)).wrapping_add(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for text in [
            "",
            "fail@5",
            "reset@100",
            "lose:p=0.001",
            "refuse@3-8:p=0.5:ch=2",
            "stick@t=20us",
            "gone@7-",
            "slow@every=10:for=1500ns",
            "corrupt:ch=0",
            "oversize",
            "fail@5+reset@100+lose:p=0.001",
        ] {
            let plan: FaultPlan = text.parse().unwrap();
            assert_eq!(plan.to_string(), text);
            plan.validate().unwrap();
        }
        let plan: FaultPlan = " fail@5; reset@6 ,lose\n".parse().unwrap();
        assert_eq!(plan.to_string(), "fail@5+reset@6+lose");
    }

    #[test]
    fn mistakes_are_named_with_the_remedy() {
        for (text, problem) in [
            ("fial@5", "no fault `fial`; there are: refuse, fail, reset"),
            ("fail@", "`` is not a task number; write `@5`"),
            ("fail@x", "`x` is not a task number"),
            ("fail@0", "tasks are counted from 1"),
            ("fail@every=0", "tasks are counted from 1"),
            ("fail@8-5", "8 is greater than 5"),
            ("fail@t=5", "`5` is not a time"),
            ("fail@t=5us:p=0.5", "p cannot be combined with @t"),
            ("fail:p=2", "p must be from 0 to 1"),
            ("fail:p=NaN", "p must be from 0 to 1"),
            ("fail:p=x", "p is `x`"),
            ("fail:p", "option `p` has no value"),
            ("fail:ch=-1", "ch is `-1`"),
            ("fail:q=1", "no option `q`; there are: p, ch, for"),
            ("slow@1", "give the additional time"),
            ("slow@1:for=200", "`200` is not a time"),
            ("fail:for=1us", "is only for `slow`"),
        ] {
            let error = text.parse::<FaultPlan>().unwrap_err();
            assert_eq!(error.rule, text);
            assert!(error.to_string().contains(problem), "{text}: {error}");
        }
        assert_eq!("fail@1+x".parse::<FaultPlan>().unwrap_err().rule, "x");
    }

    fn struck(plan: &str, channel: u32) -> Vec<u64> {
        let injector = FaultInjector::new(plan.parse().unwrap(), 1);
        (1..=10).filter(|number| !injector.strike(channel, *number).is_empty()).collect()
    }

    #[test]
    fn rules_apply_to_their_tasks_and_channel() {
        assert_eq!(struck("fail@3", 0), [3]);
        assert_eq!(struck("fail@2-4", 0), [2, 3, 4]);
        assert_eq!(struck("fail@every=4", 0), [4, 8]);
        assert!(struck("fail@3:ch=1", 0).is_empty());
        assert_eq!(struck("fail@3:ch=1", 1), [3]);
        assert_eq!(struck("fail@t=0s", 0), [1], "once");
        assert!(struck("fail@t=10s", 0).is_empty(), "later");
        assert_eq!(struck("fail:p=1", 0).len(), 10);
        assert!(struck("fail:p=0", 0).is_empty());
    }

    #[test]
    fn all_rules_that_apply_strike_at_once() {
        let injector = FaultInjector::new("fail@2+lose+slow@2:for=2us+slow:for=1us".parse().unwrap(), 7);
        let faults = injector.strike(0, 2);
        assert!(faults.has(Fault::Fail) && faults.has(Fault::Lose) && faults.has(Fault::Slow(Time::ZERO)));
        assert!(!faults.has(Fault::Gone) && injector.may(Fault::Lose) && !injector.may(Fault::Gone));
        assert_eq!(faults.slow, Time::from_us(3));
        assert!(!injector.strike(0, 1).has(Fault::Fail));
    }

    #[test]
    fn chances_are_as_often_as_they_say() {
        let injector = FaultInjector::new("fail:p=0.25".parse().unwrap(), 3);
        for channel in 0..3 {
            let struck = (0..10_000).filter(|number| !injector.strike(channel, *number).is_empty()).count();
            assert!((2_300..2_700).contains(&struck), "{struck} of channel {channel}");
        }
        let order = |channel| (0..64).map(|n| injector.strike(channel, n).is_empty()).collect::<Vec<_>>();
        assert_eq!(order(0), order(0));
        assert_ne!(order(0), order(1));
    }

    #[test]
    fn every_fault_has_its_place_among_the_names() {
        for (i, (name, fault)) in Fault::NAMES.into_iter().enumerate() {
            assert_eq!((fault.index(), FaultRule::new(fault).to_string().starts_with(name)), (i, true));
        }
    }
}
