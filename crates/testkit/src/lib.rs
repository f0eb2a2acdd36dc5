//! tollgate testkit
