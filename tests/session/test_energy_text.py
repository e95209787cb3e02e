"""What an energy looks like where a program prints it."""

from joulewise.data import Energy, Source
from joulewise.data.energy import in_words
from joulewise.session.measure import Energies


def test_an_energy_with_its_error_and_where_it_comes_from():
    assert in_words(Energy(774.7, 14.7, 0.0, Source.MEASURED)) == "774.7 J ± 1.9 %"
    assert in_words(Energy(10.0, 1.0, 0.0, Source.MODELLED)) == "10 J ± 10 % (modelled)"


def test_where_the_error_leaves_nothing_there_is_only_a_bound():
    assert in_words(Energy(0.7, 0.9, 0.0, Source.MODELLED)) == "below 1.6 J (modelled)"


def test_what_could_not_be_read_shows_so():
    assert in_words(None) == "could not be read"
    assert in_words(Energy(10.0, 1.0, 0.0, Source.MIXED)) == "10 J ± 10 % (several sources)"


def test_an_energy_prints_as_a_number_with_its_unit_and_error():
    energies = Energies({}, Energy(774.7, 14.7, 0.0, Source.MEASURED), ())
    assert str(energies.total) == "774.7 J ± 1.9 %"
    assert f"{energies.total}" == "774.7 J ± 1.9 %"
    assert energies.total.value == 774.7
