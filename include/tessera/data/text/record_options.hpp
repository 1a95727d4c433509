#pragma once
/// How the records of text files are read.

namespace tessera::data {

enum class LineBreaks { keep, drop };
/// What happens at a record that cannot be read: the run ends, or the record is left out with a
/// warning.
enum class BrokenRecords { stop, skip };

}  // namespace tessera::data
