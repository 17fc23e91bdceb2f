//! One table as a Parquet file: rows go in, and a row group goes out whenever enough of them are there. No more than
//! one row group is in memory, whatever the number of rows.

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

/// Rows of a row group: DuckDB's own number. An engine reads row groups in parallel.
const GROUP_ROWS: usize = 122_880;
/// Most entries of all lists in a row group.
const GROUP_ENTRIES: usize = 1 << 22;

/// A value of a row.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cell<'a> {
    Text(&'a str),
    Number(i64),
    Flag(bool),
    List(&'a [i32]),
    Missing,
}

impl<'a> Cell<'a> {
    /// A text that may be missing.
    pub(super) fn text(text: Option<&'a str>) -> Self {
        text.map_or(Cell::Missing, Cell::Text)
    }

    /// A number that may be missing.
    pub(super) fn number(number: Option<i64>) -> Self {
        number.map_or(Cell::Missing, Cell::Number)
    }
}

/// The values of a column in a row group. Levels are Parquet's: of a value that is there, and of one that is not.
#[derive(Default)]
struct Column {
    numbers: Vec<i64>,
    defined: Vec<i16>,
    repeated: Vec<i16>,
    /// Distinct texts; `numbers` are their indices.
    texts: Vec<ByteArray>,
    by_text: HashMap<Box<str>, i64>,
    last: Option<(Box<str>, i64)>,
}

impl Column {
    fn push(&mut self, cell: Cell<'_>) {
        match cell {
            Cell::Missing => self.defined.push(0),
            Cell::Number(number) => self.value(number),
            Cell::Flag(flag) => self.value(i64::from(flag)),
            Cell::Text(text) => {
                let number = self.text(text);
                self.value(number);
            }
            Cell::List(entries) => {
                for (index, entry) in entries.iter().enumerate() {
                    self.numbers.push(i64::from(*entry));
                    self.defined.push(1);
                    self.repeated.push(i16::from(index > 0));
                }
                if entries.is_empty() {
                    self.defined.push(0);
                    self.repeated.push(0);
                }
            }
        }
    }

    fn value(&mut self, number: i64) {
        self.numbers.push(number);
        self.defined.push(1);
    }

    /// The index of a text. Most rows have the text of the row before.
    fn text(&mut self, text: &str) -> i64 {
        if let Some((last, number)) = &self.last
            && **last == *text
        {
            return *number;
        }
        let next = self.texts.len() as i64;
        let number = *self.by_text.entry(text.into()).or_insert(next);
        if number == next {
            self.texts.push(ByteArray::from(text.as_bytes().to_vec()));
        }
        self.last = Some((text.into(), number));
        number
    }

    fn write(&self, writer: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        use parquet::column::writer::ColumnWriter;
        let numbers = self.numbers.iter();
        match writer.untyped() {
            ColumnWriter::BoolColumnWriter(_) => {
                let values: Vec<bool> = numbers.map(|number| *number != 0).collect();
                self.put::<BoolType>(writer, &values)
            }
            ColumnWriter::Int32ColumnWriter(_) => {
                let values: Vec<i32> = numbers.map(|number| *number as i32).collect();
                self.put::<Int32Type>(writer, &values)
            }
            ColumnWriter::Int64ColumnWriter(_) => self.put::<Int64Type>(writer, &self.numbers),
            _ => {
                let text = |index: &i64| self.texts[*index as usize].clone();
                let values: Vec<ByteArray> = numbers.map(text).collect();
                self.put::<ByteArrayType>(writer, &values)
            }
        }
    }

    fn put<T: DataType>(
        &self,
        writer: &mut SerializedColumnWriter<'_>,
        values: &[T::T],
    ) -> Result<(), ParquetError> {
        let repeated = (!self.repeated.is_empty()).then_some(&*self.repeated);
        // A column that must be there has no levels, which the writer finds out by itself.
        let typed = writer.typed::<T>();
        let is_optional = typed.get_descriptor().max_def_level() > 0;
        let defined = is_optional.then_some(&*self.defined);
        typed.write_batch(values, defined, repeated).map(drop)
    }

    fn clear(&mut self) {
        *self = Column::default();
    }
}

/// A file that is being written.
pub(super) struct Table {
    writer: SerializedFileWriter<Box<dyn Write + Send>>,
    columns: Vec<Column>,
    rows: usize,
    entries: usize,
}

impl Table {
    /// A file with the columns of `schema`, in Parquet's language. Those in `rising` have numbers that mostly grow.
    pub(super) fn create(
        out: Box<dyn Write + Send>,
        schema: &str,
        rising: &[&str],
    ) -> io::Result<Table> {
        let schema = Arc::new(parse_message_type(schema).map_err(failed)?);
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("uniprof ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_max_row_group_row_count(None);
        for column in rising {
            let path = ColumnPath::from(*column);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
        let columns = schema.get_fields().iter().map(|_| Column::default());
        Ok(Table {
            columns: columns.collect(),
            writer: SerializedFileWriter::new(out, schema, Arc::new(properties.build()))
                .map_err(failed)?,
            rows: 0,
            entries: 0,
        })
    }

    /// Adds a row, with a cell for each column.
    pub(super) fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            if let Cell::List(entries) = cell {
                self.entries += entries.len();
            }
            column.push(*cell);
        }
        self.rows += 1;
        if self.rows >= GROUP_ROWS || self.entries >= GROUP_ENTRIES {
            self.write_group()?;
        }
        Ok(())
    }

    fn write_group(&mut self) -> io::Result<()> {
        let mut group = self.writer.next_row_group().map_err(failed)?;
        for column in &mut self.columns {
            let Some(mut writer) = group.next_column().map_err(failed)? else {
                break;
            };
            column.write(&mut writer).map_err(failed)?;
            writer.close().map_err(failed)?;
            column.clear();
        }
        group.close().map_err(failed)?;
        (self.rows, self.entries) = (0, 0);
        Ok(())
    }

    /// Writes the rest, and facts about the whole table.
    pub(super) fn finish(mut self, facts: Vec<(&str, String)>) -> io::Result<()> {
        if self.rows > 0 {
            self.write_group()?;
        }
        for (key, value) in facts {
            let fact = KeyValue::new(key.to_owned(), value);
            self.writer.append_key_value_metadata(fact);
        }
        self.writer.close().map_err(failed)?;
        Ok(())
    }
}

fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_many_rows_is_written_in_groups() {
        use parquet::file::reader::{FileReader, SerializedFileReader};
        use parquet::record::RowAccessor;
        let schema = "message made {
            REQUIRED INT64 number; OPTIONAL BYTE_ARRAY text (STRING);
            REQUIRED group frames (LIST) { REPEATED group list { REQUIRED INT32 element; } }
        }";
        let file = tempfile::tempfile().unwrap();
        let out = Box::new(file.try_clone().unwrap());
        let mut table = Table::create(out, schema, &["number"]).unwrap();
        let rows = GROUP_ROWS as i64 + 10;
        for number in 0..rows {
            let text = (number % 3 > 0).then_some(["a", "b"][number as usize % 2]);
            let frames = &[1, 2, 3][..number as usize % 4];
            table
                .row(&[Cell::Number(number), Cell::text(text), Cell::List(frames)])
                .unwrap();
        }
        let written_bytes = file.metadata().unwrap().len();
        assert!(
            written_bytes > 1000,
            "{written_bytes}: a row group is still in memory"
        );
        table.finish(vec![("key", "value".to_owned())]).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        assert_eq!(reader.metadata().num_row_groups(), 2);
        for (number, row) in (0..).zip(reader.get_row_iter(None).unwrap()) {
            let row = row.unwrap();
            assert_eq!(row.get_long(0).unwrap(), number);
            let text = (number % 3 > 0).then_some(["a", "b"][number as usize % 2]);
            assert_eq!(row.get_string(1).ok().map(String::as_str), text);
            assert_eq!(row.get_list(2).unwrap().len(), number as usize % 4);
        }
    }
}
