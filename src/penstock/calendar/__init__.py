"""Calendars: opening hours in a time zone, holidays, closed days, blackouts, a daily cut-off. Pure.

They are below the domains, so that all domains use the same rules for business hours.
"""
