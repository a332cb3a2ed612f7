//! Which loops are unrolled, and by whom: in part here, as a whole by the driver.

use crate::constant;
use crate::syntax::{Declaration, Do, Expression, Of, Statement, Unroll};
use rspirv::spirv::LoopControl;

/// Loops of more steps are not unrolled unless they are told to be.
const STEPS_MAX: u32 = 64;
/// Nor are those that would give more statements.
const COPIES_MAX: u32 = 1024;

/// A loop's parts.
pub(super) struct Loop<'a> {
    pub(super) condition: Option<&'a Expression>,
    pub(super) step: &'a [Expression],
    pub(super) body: &'a Statement,
    /// Whether the condition is tested after the body.
    pub(super) after: bool,
    pub(super) unroll: Unroll,
    /// The number of steps, if it is known.
    pub(super) steps: Option<u32>,
}

impl Loop<'_> {
    /// How often the body is written: several times where the loop is to be unrolled in part.
    pub(super) fn copies(&self) -> u32 {
        match (self.unroll, self.steps) {
            (Unroll::By(by), Some(steps))
                if steps > 0 && steps.is_multiple_of(by) && !self.is_left() =>
            {
                by
            }
            _ => 1,
        }
    }

    /// Whether the body may end the loop or change what counts its steps.
    fn is_left(&self) -> bool {
        let counter = self.step.iter().find_map(|step| match &step.kind {
            Of::Assign(_, to, _) => Some(to),
            _ => None,
        });
        let name = counter.and_then(|to| match &to.kind {
            Of::Name(name) => Some(&**name),
            _ => None,
        });
        leaves(self.body) || name.is_none_or(|name| assigns(self.body, name))
    }

    /// What the driver is told.
    pub(super) fn control(&self) -> LoopControl {
        match (self.unroll, self.steps) {
            (Unroll::Whole, _) => LoopControl::UNROLL,
            (Unroll::Never, _) => LoopControl::DONT_UNROLL,
            (Unroll::Unsaid, Some(steps))
                if steps <= STEPS_MAX && steps.saturating_mul(copies(self.body)) <= COPIES_MAX =>
            {
                LoopControl::UNROLL
            }
            _ => LoopControl::NONE,
        }
    }
}

/// How many statements a statement gives when its loops are unrolled.
fn copies(statement: &Statement) -> u32 {
    match &statement.kind {
        Do::Block(statements) => {
            statements.iter().fold(0, |sum, each| sum.saturating_add(copies(each)))
        }
        Do::If(_, then, other) => {
            copies(then).saturating_add(other.as_deref().map_or(0, copies)).saturating_add(1)
        }
        Do::For { first, condition, step, body, .. } => {
            let steps = steps(first.as_deref(), condition.as_ref(), step).unwrap_or(1);
            copies(body).saturating_mul(steps.clamp(1, STEPS_MAX))
        }
        Do::While { body, .. } => copies(body),
        _ => 1,
    }
}

/// Whether a loop's body has a `break` or `continue` of that loop.
fn leaves(statement: &Statement) -> bool {
    match &statement.kind {
        Do::Break | Do::Continue => true,
        Do::Block(statements) => statements.iter().any(leaves),
        Do::If(_, then, other) => leaves(then) || other.as_deref().is_some_and(leaves),
        _ => false,
    }
}

/// Whether a statement assigns to a name.
fn assigns(statement: &Statement, name: &str) -> bool {
    let to = |expressions: &[Expression]| {
        expressions.iter().any(|expression| match &expression.kind {
            Of::Assign(_, to, _) => matches!(&to.kind, Of::Name(own) if &**own == name),
            _ => false,
        })
    };
    match &statement.kind {
        Do::Expressions(expressions) => to(expressions),
        Do::Block(statements) => statements.iter().any(|each| assigns(each, name)),
        Do::If(_, then, other) => {
            assigns(then, name) || other.as_deref().is_some_and(|other| assigns(other, name))
        }
        Do::For { first, step, body, .. } => {
            to(step)
                || assigns(body, name)
                || first.as_deref().is_some_and(|first| assigns(first, name))
        }
        Do::While { body, .. } => assigns(body, name),
        _ => false,
    }
}

/// The number of a loop's steps, if they are counted by constants from a constant on.
pub(super) fn steps(
    first: Option<&Statement>,
    condition: Option<&Expression>,
    step: &[Expression],
) -> Option<u32> {
    let (name, start) = match &first?.kind {
        Do::Declare(declarations) => {
            let [Declaration { name, ty, value, .. }] = declarations.as_slice() else {
                return None;
            };
            (name, value.as_ref()?.number()?.to(*ty)?)
        }
        _ => return None,
    };
    let Of::Binary(compare, left, end) = &condition?.kind else { return None };
    let [Expression { kind: Of::Assign(Some(operator), to, by), .. }] = step else { return None };
    let own = |of: &Expression| matches!(&of.kind, Of::Name(of) if of == name);
    if !own(left) || !own(to) {
        return None;
    }
    let (end, by) = (end.number()?, by.number()?);
    let (mut at, mut count) = (start, 0);
    while constant::binary(compare, at, end)?.is_true() {
        count += 1;
        if count > STEPS_MAX {
            return None;
        }
        at = constant::binary(operator, at, by)?.to(start.ty())?;
    }
    Some(count)
}
