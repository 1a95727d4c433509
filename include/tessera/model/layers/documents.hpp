#pragma once
/// Documents that are packed into one row and end with a token of their own, in the words of
/// Megatron-LM's options (megatron/training/utils.py, get_ltor_masks_and_position_ids).

#include <cstdint>

namespace tessera::model {

/// What the ends of documents change.
struct DocumentOptions {
  std::int32_t eod_token = -1;        ///< the last token of each document; -1: there are none
  bool reset_attention_mask = false;  ///< a token attends to the tokens of its own document only
  bool reset_position_ids = false;    ///< positions count from 0 in each document
  bool eod_mask_loss = false;         ///< what follows an eod_token is not predicted

  bool any() const { return reset_attention_mask || reset_position_ids || eod_mask_loss; }
  bool operator==(DocumentOptions const&) const = default;
};

/// Rows of token ids.
struct TokenRows {
  std::int32_t const* tokens = nullptr;  ///< [rows, sequence]
  std::int64_t rows = 0, sequence = 0;
  std::int64_t numel() const { return rows * sequence; }
};

/// starts [rows, sequence]: where in its row each token's document begins. A document that began in
/// an earlier row begins at 0.
void find_documents(TokenRows const& rows, std::int32_t eod_token, std::int32_t* starts);
/// positions [rows, sequence]: of each token in its document.
void find_positions(TokenRows const& rows, std::int32_t eod_token, std::int32_t* positions);
/// Labels of rows that are predicted: those of each row but the first that are not negative.
std::int64_t count_labels(std::int32_t const* labels, std::int64_t rows, std::int64_t sequence);
/// The tokens that are predicted: of each row all but the first, and with eod_mask_loss not those
/// after an eod_token.
std::int64_t count_predictions(TokenRows const& rows, DocumentOptions const& documents);

}  // namespace tessera::model
