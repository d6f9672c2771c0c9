from arena.contracts.contract import ContractBroken as ContractBroken
from populations.contracts.exploit import check_exploit as check_exploit
from populations.contracts.explore import check_explore as check_explore
from populations.contracts.matchmaker import check_matchmaker as check_matchmaker
from populations.contracts.thinning import check_thinning as check_thinning
