#include "tessera/model/layers/documents.hpp"

namespace tessera::model {

void find_documents(TokenRows const& rows, std::int32_t eod_token, std::int32_t* starts) {
  std::int32_t start = 0;
  for (std::int64_t i = 0; i < rows.numel(); ++i) {
    auto const at = static_cast<std::int32_t>(i % rows.sequence);
    if (at == 0)
      start = 0;
    else if (rows.tokens[i - 1] == eod_token)
      start = at;
    starts[i] = start;
  }
}

void find_positions(TokenRows const& rows, std::int32_t eod_token, std::int32_t* positions) {
  find_documents(rows, eod_token, positions);
  for (std::int64_t i = 0; i < rows.numel(); ++i)
    positions[i] = static_cast<std::int32_t>(i % rows.sequence) - positions[i];
}

std::int64_t count_labels(std::int32_t const* labels, std::int64_t rows, std::int64_t sequence) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < rows * sequence; ++i) count += i % sequence != 0 && labels[i] >= 0;
  return count;
}

std::int64_t count_predictions(TokenRows const& rows, DocumentOptions const& documents) {
  std::int64_t count = rows.rows * (rows.sequence - 1);
  if (!documents.eod_mask_loss) return count;
  for (std::int64_t i = 0; i < rows.numel(); ++i)
    count -= (i + 1) % rows.sequence != 0 && rows.tokens[i] == documents.eod_token;
  return count;
}

}  // namespace tessera::model
