//! tollgate tollgate
