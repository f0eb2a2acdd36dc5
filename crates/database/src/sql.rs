//! The seam between the ledger and a database: statements with typed values.

use crate::Error;
use crate::ledger::Id;

/// A value of a column.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Value {
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
    Null,
}

/// A row of a result.
pub(crate) type Row = Vec<Value>;

/// A transaction that is open.
pub(crate) trait Sql {
    /// What a SELECT appends to lock the rows that it returns.
    const LOCK: &'static str;
    /// The type of a column of bytes.
    const BYTES: &'static str;
    /// The statement that announces a commit to other servers, if the database can.
    const NOTIFY: Option<&'static str>;

    /// The query for the partitions of the entries, if the database has some.
    const PARTITIONS: Option<&'static str>;

    /// Lets the statements of this transaction take as long as they need: they are an administrator's. Waiting for a lock
    /// stays bounded, because servers queue behind it.
    async fn unlimited(&mut self) -> Result<(), Error>;

    /// Runs the statement once for each set of parameters, in order, and returns the rows of each run.
    async fn run(&mut self, sql: &str, sets: Vec<Vec<Value>>) -> Result<Vec<Vec<Row>>, Error>;
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Int(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<Id> for Value {
    fn from(id: Id) -> Value {
        Value::Bytes(id.0.to_vec())
    }
}

impl From<Option<Id>> for Value {
    fn from(id: Option<Id>) -> Value {
        id.map_or(Value::Null, Value::from)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Value {
        Value::Bytes(bytes.to_vec())
    }
}

/// Reads the columns of a row from left to right.
pub(crate) struct Columns(std::vec::IntoIter<Value>);

impl Columns {
    pub(crate) fn of(row: Row) -> Columns {
        Columns(row.into_iter())
    }

    pub(crate) fn int(&mut self, column: &'static str) -> Result<i64, Error> {
        match self.0.next() {
            Some(Value::Int(number)) => Ok(number),
            other => Err(unexpected(column, other)),
        }
    }

    pub(crate) fn optional_int(&mut self, column: &'static str) -> Result<Option<i64>, Error> {
        match self.0.next() {
            Some(Value::Null) => Ok(None),
            Some(Value::Int(number)) => Ok(Some(number)),
            other => Err(unexpected(column, other)),
        }
    }

    pub(crate) fn text(&mut self, column: &'static str) -> Result<String, Error> {
        match self.0.next() {
            Some(Value::Text(text)) => Ok(text),
            other => Err(unexpected(column, other)),
        }
    }

    pub(crate) fn optional_text(&mut self, column: &'static str) -> Result<Option<String>, Error> {
        match self.0.next() {
            Some(Value::Null) => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            other => Err(unexpected(column, other)),
        }
    }

    pub(crate) fn optional_id(&mut self, column: &'static str) -> Result<Option<Id>, Error> {
        match self.0.next() {
            Some(Value::Null) => Ok(None),
            Some(Value::Bytes(bytes)) => Ok(Some(Id(array(column, bytes)?))),
            other => Err(unexpected(column, other)),
        }
    }

    pub(crate) fn bytes<const LEN: usize>(&mut self, column: &'static str) -> Result<[u8; LEN], Error> {
        match self.0.next() {
            Some(Value::Bytes(bytes)) => array(column, bytes),
            other => Err(unexpected(column, other)),
        }
    }
}

fn array<const LEN: usize>(column: &'static str, bytes: Vec<u8>) -> Result<[u8; LEN], Error> {
    bytes.try_into().map_err(|bytes| unexpected(column, Some(Value::Bytes(bytes))))
}

fn unexpected(column: &'static str, value: Option<Value>) -> Error {
    Error::Row { column, value: format!("{value:?}") }
}
