//! The conditions of rules: CEL expressions that are parsed and limited when a version is created.
//!
//! The CEL interpreter has no limit on evaluation steps. This module therefore refuses all constructs that could be
//! costly: long sources, deep or wide expressions, nested loops, and unknown names.

mod parser_error_explanation;
mod refusal;

use super::{
    cost::{self, DataSize},
    pattern::Patterns,
    variables,
};
use cel::{
    IdedExpr,
    common::ast::{EntryExpr, Expr, LiteralValue},
    parser::{
        PrattParser,
        pratt_parser::{Lexer, TokenKind},
    },
};

pub(super) use refusal::ConditionRefusal;
use refusal::UnknownName;

/// The maximum length of a condition's source, in bytes.
pub(super) const MAX_SOURCE_BYTES: usize = 4 << 10;
/// The maximum depth of an expression.
pub(super) const MAX_DEPTH: usize = 32;
/// The maximum number of nodes of an expression, including the expansion of macros.
pub(super) const MAX_NODES: usize = 500;
/// The maximum number of macros that may enclose a macro such as `exists`.
pub(super) const MAX_MACRO_NESTING: usize = 1;
/// The maximum number of tokens of a source. A source with more tokens would exceed another limit anyway.
const MAX_TOKENS: usize = 1_500;

/// The functions that a condition may call as `name(...)`; `MEMBER_FUNCTIONS` lists those for `value.name(...)`. An
/// unknown function is refused, because it would fail in every run.
const GLOBAL_FUNCTIONS: [&str; 9] = ["size", "int", "uint", "double", "string", "bool", "timestamp", "duration", "dyn"];
const MEMBER_FUNCTIONS: [&str; 15] = [
    "matches",
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "getFullYear",
    "getMonth",
    "getDayOfYear",
    "getDayOfMonth",
    "getDate",
    "getDayOfWeek",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
];
/// The permitted operators, by the names that the parser gives them.
const OPERATORS: [&str; 19] = [
    "_?_:_",
    "_&&_",
    "_||_",
    "!_",
    "_-_",
    "_+_",
    "_*_",
    "_/_",
    "_%_",
    "_==_",
    "_!=_",
    "_>=_",
    "_<=_",
    "_>_",
    "_<_",
    "-_",
    "_[_]",
    "@in",
    "@not_strictly_false",
];

/// The operators and functions whose result is a number, text, time or list, and therefore no boolean.
const NON_BOOLEAN_FUNCTIONS: [&str; 13] =
    ["_-_", "_+_", "_*_", "_/_", "_%_", "-_", "size", "int", "uint", "double", "string", "timestamp", "duration"];

/// The condition of a rule.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Condition {
    /// The constant `always`, which holds in every run.
    Always,
    /// The constant `never`, which holds in no run.
    Never,
    /// A CEL expression.
    Expression(Box<IdedExpr>),
}

impl Condition {
    /// The names of all variables in the condition, including the loop variables of macros.
    pub(super) fn variables(&self) -> Vec<String> {
        match self {
            Self::Always | Self::Never => Vec::new(),
            Self::Expression(expression) => {
                expression.references().variables().into_iter().map(str::to_owned).collect()
            }
        }
    }
}

impl Condition {
    /// Compiles the source of a condition within all limits, and adds its patterns to those of the bundle.
    pub(super) fn compile(source: &str, patterns: &mut Patterns) -> Result<Self, ConditionRefusal> {
        match source.trim() {
            "always" => return Ok(Self::Always),
            "never" => return Ok(Self::Never),
            _ => {}
        }
        if source.len() > MAX_SOURCE_BYTES {
            return Err(ConditionRefusal::SourceTooLong);
        }
        within_parser_bounds(source)?;
        let depth = u16::try_from(MAX_DEPTH).unwrap_or(u16::MAX);
        let parsed = PrattParser::new().max_recursion_depth(depth).parse(source);
        let expression = parsed.map_err(|errors| syntax(source, &errors))?;
        let mut walk = ExpressionWalk { source, patterns, nodes: 0, macro_variables: Vec::new() };
        walk.visit(&expression, 1, 0)?;
        // For patterns, this estimate assumes one step for each byte, because existing versions use slow patterns on
        // short texts.
        if cost::estimate_steps(&expression, DataSize::ASSUMED, &Patterns::default()) > cost::MAX_ESTIMATED_STEPS {
            return Err(ConditionRefusal::TooCostly);
        }
        Ok(Self::Expression(Box::new(expression)))
    }
}

impl Condition {
    /// Whether no evaluation can yield a boolean. Such a condition would fail in every run, and thereby deny it.
    pub(super) fn is_never_boolean(&self) -> bool {
        match self {
            Self::Always | Self::Never => false,
            Self::Expression(expression) => is_never_boolean(expression),
        }
    }
}

impl Condition {
    /// The value of a boolean literal; `None` for other expressions.
    pub(super) fn literal_truth(expression: &IdedExpr) -> Option<bool> {
        let Expr::Literal(LiteralValue::Boolean(truth)) = &expression.expr else { return None };
        Some(*truth.inner())
    }
}

/// Whether the form of an expression proves that it never yields a boolean. The recursion is bounded by the depth of
/// the expression.
fn is_never_boolean(node: &IdedExpr) -> bool {
    match &node.expr {
        Expr::Literal(LiteralValue::Boolean(_)) | Expr::Ident(_) => false,
        Expr::Literal(_) | Expr::List(_) | Expr::Map(_) => true,
        // The fields of records such as `actor` are texts and lists. The fields of inputs can have any type.
        Expr::Select(select) => {
            !select.test && matches!(&select.operand.expr, Expr::Ident(name) if variables::is_record(name))
        }
        Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
            ("_?_:_", [_, if_true, if_false]) => is_never_boolean(if_true) && is_never_boolean(if_false),
            ("!_", [inner]) => is_never_boolean(inner),
            ("_&&_" | "_||_", [left, right]) => is_never_boolean(left) && is_never_boolean(right),
            (name, _) => NON_BOOLEAN_FUNCTIONS.contains(&name) || name.starts_with("get"),
        },
        // The result of `map` and `filter` is a list, and that of `all` and `exists` a boolean, as their initial
        // accumulators show. `exists_one` ends with a comparison.
        Expr::Comprehension(comprehension) => {
            let returns_accumulator = matches!(comprehension.result.expr, Expr::Ident(_));
            is_never_boolean(if returns_accumulator { &comprehension.accu_init } else { &comprehension.result })
        }
        Expr::Struct(_) | Expr::Unspecified => false,
    }
}

fn syntax(source: &str, errors: &cel::ParseErrors) -> ConditionRefusal {
    if errors.errors.iter().any(|error| error.msg.contains("recursion limit")) {
        return ConditionRefusal::TooDeep;
    }
    let (line, column) = errors.errors.first().map_or((1, 1), |error| error.pos);
    let positive = |number: isize| usize::try_from(number).unwrap_or(1).max(1);
    let (line, column) = (positive(line), positive(column));
    let message = errors.errors.first().map_or("", |error| error.msg.as_str());
    let explanation = parser_error_explanation::explain(source, (line, column), message);
    ConditionRefusal::Syntax { line, column, explanation }
}

/// Limits the number of conditionals (`?:`) and of tokens before parsing. The parser does not count its recursion into
/// conditionals, and copies the arguments of calls at every level.
fn within_parser_bounds(source: &str) -> Result<(), ConditionRefusal> {
    let mut lexer = Lexer::new(source);
    let mut conditionals = 0_usize;
    for _ in 0..MAX_TOKENS {
        let kind = lexer.lex().kind;
        if is_end_token(kind) {
            return Ok(());
        }
        if kind == TokenKind::TokQuestion {
            conditionals += 1;
            if conditionals > MAX_DEPTH {
                return Err(ConditionRefusal::TooDeep);
            }
        }
    }
    Err(ConditionRefusal::TooManyNodes)
}

/// The operator that connects the clauses of a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LogicalOperator {
    /// All clauses must hold.
    And,
    /// At least one clause must hold.
    Or,
}

impl LogicalOperator {
    /// The operator as CEL spells it.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::And => "&&",
            Self::Or => "||",
        }
    }
}

/// Splits a condition at its outermost `||` operators or, without any, at its outermost `&&` operators. Conditionals
/// (`?:`) are not split.
pub(super) fn split_clauses(source: &str) -> (Option<LogicalOperator>, Vec<&str>) {
    let mut lexer = Lexer::new(source);
    let (mut depth, mut conjunctions, mut disjunctions) = (0_usize, Vec::new(), Vec::new());
    for _ in 0..MAX_TOKENS {
        let token = lexer.lex();
        let is_any = |kinds: &[TokenKind]| kinds.contains(&token.kind);
        if is_end_token(token.kind) {
            break;
        }
        if is_any(&[TokenKind::TokLeftParen, TokenKind::TokLeftBracket, TokenKind::TokLeftBrace]) {
            depth += 1;
        } else if is_any(&[TokenKind::TokRightParen, TokenKind::TokRightBracket, TokenKind::TokRightBrace]) {
            depth = depth.saturating_sub(1);
        } else if depth == 0 && is_any(&[TokenKind::TokQuestion]) {
            return (None, vec![source.trim()]);
        } else if depth == 0 && is_any(&[TokenKind::TokLogicalAnd]) {
            conjunctions.push(token.start..token.end);
        } else if depth == 0 && is_any(&[TokenKind::TokLogicalOr]) {
            disjunctions.push(token.start..token.end);
        }
    }
    let (operator, separators) = match (disjunctions.is_empty(), conjunctions.is_empty()) {
        (false, _) => (Some(LogicalOperator::Or), disjunctions),
        (true, false) => (Some(LogicalOperator::And), conjunctions),
        (true, true) => (None, conjunctions),
    };
    let starts = std::iter::once(0).chain(separators.iter().map(|separator| separator.end));
    let ends = separators.iter().map(|separator| separator.start).chain(std::iter::once(source.len()));
    let clauses = starts.zip(ends).map(|(start, end)| source.get(start..end).unwrap_or_default().trim());
    (operator, clauses.collect())
}

/// Whether reading tokens ends here. A lexical error ends it too, because the parser reports that error with its
/// position.
fn is_end_token(kind: TokenKind) -> bool {
    kind == TokenKind::TokEnd || kind == TokenKind::TokError
}

/// The line and column of the first identifier with this name in the source.
fn position(source: &str, name: &str) -> (usize, usize) {
    let mut lexer = Lexer::new(source);
    for _ in 0..MAX_TOKENS {
        let token = lexer.lex();
        if is_end_token(token.kind) {
            break;
        }
        let token_text = source.get(token.start..token.end).unwrap_or_default();
        if token_text.trim_matches(['"', '\'']) == name {
            let before = source.get(..token.start).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().map_or(0, |rest| rest.chars().count()) + 1;
            return (line, column);
        }
    }
    (1, 1)
}

/// A walk over an expression that checks all limits. It tracks the loop variables of the macros around a node.
struct ExpressionWalk<'e> {
    source: &'e str,
    patterns: &'e mut Patterns,
    nodes: usize,
    macro_variables: Vec<&'e str>,
}

impl<'e> ExpressionWalk<'e> {
    fn visit(&mut self, node: &'e IdedExpr, depth: usize, macros: usize) -> Result<(), ConditionRefusal> {
        self.nodes += 1;
        if depth > MAX_DEPTH {
            return Err(ConditionRefusal::TooDeep);
        }
        if self.nodes > MAX_NODES {
            return Err(ConditionRefusal::TooManyNodes);
        }
        match &node.expr {
            Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => {
                let fields = self.fields_of(&select.operand).filter(|fields| !fields.contains(&select.field.as_str()));
                if let Some(fields) = fields {
                    let name = UnknownName::find(self.source, &select.field);
                    return Err(ConditionRefusal::UnknownField(name, fields));
                }
                self.operand(&select.operand, depth, macros)
            }
            Expr::Call(call) => {
                if let ("_[_]", [container, key]) = (call.func_name.as_str(), call.args.as_slice()) {
                    return self.index(container, key, depth, macros);
                }
                self.function(&call.func_name, call.target.is_some())?;
                if call.func_name == "matches" {
                    self.pattern(&call.args)?;
                }
                let target = call.target.iter().map(AsRef::as_ref);
                target.chain(&call.args).try_for_each(|child| self.visit(child, depth + 1, macros))
            }
            Expr::List(list) => list.elements.iter().try_for_each(|child| self.visit(child, depth + 1, macros)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.visit(&entry.key, depth + 1, macros)?;
                    self.visit(&entry.value, depth + 1, macros)
                }
                EntryExpr::StructField(_) => Err(ConditionRefusal::Unsupported),
            }),
            Expr::Comprehension(comprehension) => {
                if macros > MAX_MACRO_NESTING {
                    return Err(ConditionRefusal::NestedMacros);
                }
                // A loop variable with the name of a root variable would make the checks of fields ambiguous.
                if comprehension.iter_var2.is_some() || variables::is_root_variable(&comprehension.iter_var) {
                    return Err(ConditionRefusal::Unsupported);
                }
                self.visit(&comprehension.iter_range, depth + 1, macros)?;
                self.visit(&comprehension.accu_init, depth + 1, macros)?;
                self.macro_variables.push(&comprehension.iter_var);
                let inner = [&comprehension.loop_cond, &comprehension.loop_step, &comprehension.result];
                let result = inner.into_iter().try_for_each(|child| self.visit(child, depth + 1, macros + 1));
                self.macro_variables.pop();
                result
            }
            Expr::Struct(_) | Expr::Unspecified => Err(ConditionRefusal::Unsupported),
        }
    }

    /// Checks a variable that is read without a field. Loop variables are allowed, and root variables that are not
    /// records. Records must be read field by field, so that the fields on which a rule depends are known.
    fn variable(&self, name: &str) -> Result<(), ConditionRefusal> {
        if name.starts_with('@') || self.macro_variables.contains(&name) {
            return Ok(());
        }
        if !variables::is_root_variable(name) {
            return Err(ConditionRefusal::UnknownVariable(UnknownName::find(self.source, name)));
        }
        if variables::is_record(name) {
            let fields = variables::fields_of_variable(name).unwrap_or_default();
            return Err(ConditionRefusal::UnknownField(UnknownName::find(self.source, name), fields));
        }
        Ok(())
    }

    /// The fields that a condition may select from `operand`; `None` if it may select any field.
    fn fields_of(&self, operand: &IdedExpr) -> Option<&'static [&'static str]> {
        if let Expr::Ident(name) = &operand.expr {
            return if self.macro_variables.contains(&name.as_str()) {
                None
            } else {
                variables::fields_of_variable(name)
            };
        }
        // The operand is a field of a record, that is, a text or a list. No field can be selected from it.
        let Expr::Select(select) = &operand.expr else { return None };
        self.is_record(&select.operand).then_some(&[])
    }

    fn is_record(&self, node: &IdedExpr) -> bool {
        matches!(&node.expr, Expr::Ident(name) if !self.macro_variables.contains(&name.as_str()) && variables::is_record(name))
    }

    /// Visits the operand of a field selection. A record may occur without a field only here.
    fn operand(&mut self, operand: &'e IdedExpr, depth: usize, macros: usize) -> Result<(), ConditionRefusal> {
        if self.is_record(operand) {
            self.nodes += 1;
            return Ok(());
        }
        self.visit(operand, depth + 1, macros)
    }

    fn index(
        &mut self,
        container: &'e IdedExpr,
        key: &'e IdedExpr,
        depth: usize,
        macros: usize,
    ) -> Result<(), ConditionRefusal> {
        if let (Some(fields), Expr::Ident(name)) = (self.fields_of(container), &container.expr) {
            let is_known = matches!(&key.expr, Expr::Literal(literal)
                if fields.iter().any(|field| *literal == LiteralValue::String((*field).into())));
            if !is_known {
                return Err(ConditionRefusal::UnknownField(UnknownName::find(self.source, name), fields));
            }
        }
        self.operand(container, depth, macros)?;
        self.visit(key, depth + 1, macros)
    }

    /// Compiles the pattern of a `matches` call. The pattern must be a literal, so that it is compiled only once and
    /// its cost is known.
    fn pattern(&mut self, arguments: &[IdedExpr]) -> Result<(), ConditionRefusal> {
        let [IdedExpr { expr: Expr::Literal(LiteralValue::String(pattern)), .. }] = arguments else {
            return Err(ConditionRefusal::Pattern);
        };
        self.patterns.add(pattern.inner())
    }

    fn function(&self, name: &str, member: bool) -> Result<(), ConditionRefusal> {
        let is_known = if member {
            MEMBER_FUNCTIONS.contains(&name)
        } else {
            GLOBAL_FUNCTIONS.contains(&name) || OPERATORS.contains(&name)
        };
        if is_known {
            return Ok(());
        }
        Err(ConditionRefusal::UnknownFunction(UnknownName::find(self.source, name)))
    }
}
