//! The right that each route needs. Routes that are not listed are for administrators.

use super::keys::KeyRole;
use axum::http::Method;
use std::collections::HashMap;

/// The right that a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Right {
    /// None.
    Anybody,
    /// At least this role.
    Role(KeyRole),
}

impl From<KeyRole> for Right {
    fn from(role: KeyRole) -> Self {
        Self::Role(role)
    }
}

/// The rights of a router's routes.
#[derive(Debug)]
pub(crate) struct Rights(HashMap<String, Vec<(Method, Right)>>);

impl Rights {
    /// The rights of routes, each given by method and pattern.
    pub(crate) fn of(routes: impl IntoIterator<Item = (Method, String, Right)>) -> Self {
        let mut all: HashMap<String, Vec<(Method, Right)>> = HashMap::new();
        for (method, path, right) in routes {
            all.entry(path).or_default().push((method, right));
        }
        Self(all)
    }

    /// The right that a route needs.
    pub(super) fn right(&self, method: &Method, route: &str) -> Right {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let listed = || self.0.get(route).into_iter().flatten();
        let found = listed().find(|(known, _)| known == method).map(|(_, right)| *right);
        // A caller of the path's other methods may learn that this one is wrong (405).
        let found = found.or_else(|| listed().map(|(_, right)| *right).min());
        found.unwrap_or(Right::Role(KeyRole::Admin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_listed_is_for_administrators() {
        let (admin, submit) = (Right::Role(KeyRole::Admin), Right::Role(KeyRole::Submit));
        let route = |method, path: &str, right| (method, path.to_owned(), right);
        let rights = Rights::of([
            route(Method::GET, "/live", Right::Anybody),
            route(Method::GET, "/tasks/{id}", submit),
            route(Method::POST, "/tasks/{id}", admin),
        ]);
        for (method, route, expected) in [
            (Method::GET, "/live", Right::Anybody),
            (Method::HEAD, "/live", Right::Anybody),
            (Method::POST, "/live", Right::Anybody),
            (Method::GET, "/live/", admin),
            (Method::GET, "/tasks/{id}", submit),
            (Method::HEAD, "/tasks/{id}", submit),
            (Method::POST, "/tasks/{id}", admin),
            (Method::DELETE, "/tasks/{id}", submit),
            (Method::GET, "/made-up", admin),
        ] {
            assert_eq!(rights.right(&method, route), expected, "{method} {route}");
        }
    }
}
