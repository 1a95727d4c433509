#include "families/family.hpp"

#include "family_suite.hpp"

namespace {

using namespace tessera;

TESSERA_FAMILY_SUITE(GptNeox, "gpt_neox")

}  // namespace
