#pragma once
/// The message of the error that an action throws.

#include <string>

#include "tessera/core/error.hpp"

namespace tessera {

/// Runs @p action; returns the message of the ErrorType that it throws, or "" when it throws none.
/// Other exceptions pass.
template <class ErrorType = Error, class Action>
std::string error_of(Action const& action) {
  try {
    action();
  } catch (ErrorType const& e) {
    return e.what();
  }
  return "";
}

}  // namespace tessera
